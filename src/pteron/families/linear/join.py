"""A join of a norm and a product of its few rows."""

from __future__ import annotations

from typing import Any

from pteron.ops import Dispatch
from pteron.ops.rewrite import IsRead, join, same_memory
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

# The names of a norm's factor and result, by kernel.
_NORMS = {"rms_norm": ("weight", "out"), "rms_norm_registers": ("gain", "normed")}


@join("norm_matvec")
def norm_matvec(first: Dispatch, second: Dispatch, is_read: IsRead) -> Dispatch | None:
    """An RMS norm of up to four rows and the only product that reads it: each column's walk along the rows
    finds their squares too."""
    if first.kernel.name not in _NORMS or second.kernel.name != "matvec":
        return None
    factor, result = _NORMS[first.kernel.name]
    given, taken = dict(first.kernel.declarations), dict(second.kernel.declarations)
    normed, sizes = first.bindings[result], second.parameters
    if not same_memory(normed, second.bindings["a"]) or is_read(normed) or "use_quads_a" in taken:
        return None
    if sizes["parts"] != 1 or sizes["batch"] != 1 or sizes["rows"] != first.parameters["rows"]:
        return None
    taken.pop("gain_at")
    eps = given["EPS"] if "EPS" in given else first.parameters["eps"]
    arguments: dict[str, Any] = {**second.bindings, **sizes, "a": first.bindings["x"]}
    return Dispatch(
        kernel("matvec", **taken, IS_NORMED=True, EPS=eps),
        **arguments,
        gain=first.bindings[factor],
        groups=second.groups,
    )
