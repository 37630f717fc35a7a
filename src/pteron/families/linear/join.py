"""A join of a norm and a product of its few rows."""

from __future__ import annotations

from pteron.ops import Dispatch
from pteron.ops.rewrite import IsRead, join, same_memory
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

# The names of a norm's factor and result, by kernel.
_NORMS = {"norm": ("weight", "out"), "norm_registers": ("gain", "normed")}


@join("norm_matvec")
def norm_matvec(first: Dispatch, second: Dispatch, is_read: IsRead) -> Dispatch | None:
    """An RMS norm of up to four rows and the only product that reads it: each column's walk along the rows
    finds their squares too."""
    if first.kernel.name not in _NORMS or "mean" in first.bindings or second.kernel.name != "matvec":
        return None
    factor, result = _NORMS[first.kernel.name]
    normed, sizes = first.bindings[result], second.parameters
    if not same_memory(normed, second.bindings["a"]) or is_read(normed):
        return None
    if sizes["parts"] != 1 or sizes["batch"] != 1 or sizes["rows"] != first.parameters["rows"]:
        return None
    if second.arguments["A_QUADS"] != "true":
        return None
    given = first.arguments
    return Dispatch(
        kernel("matvec"),
        **second.arguments | {"a": first.bindings["x"]},
        gain=first.bindings[factor],
        EPS=given["EPS"] if "EPS" in given else given["eps"],
        groups=second.groups,
    )
