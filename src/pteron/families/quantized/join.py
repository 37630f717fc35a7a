"""A join of a product with 4-bit weights and what follows its rows."""

from __future__ import annotations

from pteron.ops import Dispatch
from pteron.ops.rewrite import IsRead, join, same_memory
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

_ROW_KERNELS = ("norm_registers", "quantize_rows")  # kernels that hold rows in registers


@join("merge_rows")
def merge_rows(first: Dispatch, second: Dispatch, is_read: IsRead) -> Dispatch | None:
    """Merge the parts of a product, and norm its rows or convert them to int8."""
    merges_quads = first.kernel.name == "q4_merge" and first.arguments["BY_QUADS"] == "true"
    if not merges_quads or second.kernel.name not in _ROW_KERNELS or "mean" in second.bindings:
        return None
    out, rows = first.bindings["out"], first.parameters["rows"]
    is_single = "out_b" not in first.bindings
    if not is_single or not same_memory(out, second.bindings["x"]) or rows != second.parameters["rows"]:
        return None
    arguments = {**first.arguments, **second.arguments, "x": None}
    if not is_read(out):
        arguments |= {"out": None, "R": out.storage}  # rows are rounded to this type nevertheless
    return Dispatch(kernel("q4_merge_rows"), **arguments, groups=second.groups)
