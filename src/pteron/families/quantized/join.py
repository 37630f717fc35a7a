"""Joins of products with 4-bit weights and the launches before or after them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pteron.ops import Dispatch
from pteron.ops.dispatch import elements
from pteron.ops.rewrite import IsRead, join, same_memory
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

# By the kernel that reads rows from memory: the library that processes a row.
_ROWS = {"rms_norm_registers": "row_normed", "quantize_rows": "row_int8"}
# Functions that store an output, replaced if no later launch reads it.
_NO_STORE = {"put_quad": "return;", "store_gated_pair": "return;"}
# Names of queries, keys and values in the product that computes them, and in the rotation.
_QKV = {"out": "q", "out_b": "k", "out_c": "v"}
_QUAD_KERNELS = ("q4_tiled", "q4_matrix", "q4_int8", "q4_rows")  # kernels that store quads of columns
_ROPE_PARAMETERS = ("steps", "rotary", "start", "cache_start", "out_stride", "angle_strides")
_OUTPUT_DECLARATIONS = ("OTHERS", "WIDTH_B", "store_other")  # declarations of products with several outputs


@join("merge_rows")
def merge_rows(first: Dispatch, second: Dispatch, is_read: IsRead) -> Dispatch | None:
    """Merge the parts of a product, and norm its rows or convert them to int8."""
    if first.kernel.name != "q4_merge_quads" or second.kernel.name not in _ROWS:
        return None
    out, rows = first.bindings["out"], first.parameters["rows"]
    is_single = "out_b" not in first.bindings
    if not is_single or not same_memory(out, second.bindings["x"]) or rows != second.parameters["rows"]:
        return None
    declarations: dict[str, Any] = {**dict(first.kernel.declarations), **dict(second.kernel.declarations)}
    arguments: dict[str, Any] = {**first.bindings, **second.bindings, **first.parameters, "x": None}
    if not is_read(out):
        declarations |= _NO_STORE | {"R": out.storage}
        arguments["out"] = None
    joined = kernel("q4_merge_rows", use_row_normed=_ROWS[second.kernel.name], **declarations)
    return Dispatch(joined, **arguments, groups=second.groups)


@join("merge_rope")
def merge_rope(first: Dispatch, second: Dispatch, is_read: IsRead) -> Dispatch | None:
    """Merge the parts of queries, keys and values, rotate them and write them to their caches."""
    if first.kernel.name != "q4_merge_quads" or not _is_rope_of(first, second, is_read, 8):
        return None
    declarations, arguments = _rope_arguments(first, second)
    outputs = arguments["rows"] * arguments["columns"]
    return Dispatch(kernel("q4_merge_rope", **declarations), **arguments, threads=outputs // 8)


@join("tile_rope")
def tile_rope(first: Dispatch, second: Dispatch, is_read: IsRead) -> Dispatch | None:
    """The same for a product that is not split, if neighbouring columns are rotated together: an invocation
    has both."""
    if first.kernel.name not in _QUAD_KERNELS or not _is_rope_of(first, second, is_read, 4):
        return None
    declarations, arguments = _rope_arguments(first, second)
    if declarations.get("use_q4_result") != "q4_quads" or "HALVED" in declarations:
        return None
    declarations |= {"use_q4_result": "q4_quads_rope", "use_q4_sizes": "q4_sizes_rope"}
    return Dispatch(kernel(first.kernel.name, **declarations), **arguments, groups=first.groups)


@join("embedding_product")
def embedding_product(first: Dispatch, second: Dispatch, is_read: IsRead) -> Dispatch | None:
    """An embedding and a product of its few rows: each workgroup of the product reads the table."""
    if first.kernel.name != "embedding_q4" or second.kernel.name != "q4_digits":
        return None
    out, x = first.bindings["out"], second.bindings.get("x")
    given, taken = (dict(each.kernel.declarations) for each in (first, second))
    if x is None or not same_memory(out, x) or 2 * int(given["TABLE_WORDS"]) != int(taken["QUADS"]):
        return None
    declarations: dict[str, Any] = {**given, **taken, "use_x_source": "x_source_embedding"}
    picked = {name: each for name, each in first.bindings.items() if name != "out"}
    arguments: dict[str, Any] = {**picked, **second.bindings, **second.parameters}
    return Dispatch(kernel("q4_digits", **declarations), **arguments, groups=second.groups)


def _is_rope_of(first: Dispatch, second: Dispatch, is_read: IsRead, quantum: int) -> bool:
    """Whether the second launch rotates the queries and keys of the first and copies its values, no other
    launch reads them, and heads are multiples of `quantum` columns."""
    if second.kernel.name != "rope" or not first.bindings.keys() >= _QKV.keys():
        return False
    if not second.bindings.keys() >= set(_QKV.values()):
        return False
    given: Mapping[str, Any] = second.parameters
    rows, width = first.parameters["rows"], given["width"]
    heads = given["heads"], given["key_heads"], given["key_heads"]
    return (
        all(same_memory(first.bindings[made], second.bindings[name]) for made, name in _QKV.items())
        and all(
            elements(first.bindings[made]) == rows * each * width
            for made, each in zip(_QKV, heads, strict=True)
        )
        and width % quantum == given["rotary"] % quantum == 0
        and not any(is_read(first.bindings[made]) for made in _QKV)
    )


def _rope_arguments(first: Dispatch, second: Dispatch) -> tuple[dict[str, Any], dict[str, Any]]:
    """(declarations, arguments) of a product that rotates its columns (lib/q4_quads_rope.wgsl)."""
    given: Mapping[str, Any] = second.parameters
    kept = {name: text for name, text in first.kernel.declarations if name not in _OUTPUT_DECLARATIONS}
    declarations = {
        **kept,
        **dict(second.kernel.declarations),
        "HEAD_WIDTH": given["width"],
        "ROTARY": given["rotary"],
        "QUERIES": given["heads"] * given["width"],
        "KEYS": given["key_heads"] * given["width"],
    }
    bound = {**first.bindings, **second.bindings}
    same = {name: given[name] for name in _ROPE_PARAMETERS}
    arguments = {name: each for name, each in bound.items() if name not in (*_QKV, *_QKV.values())}
    return declarations, {**arguments, **first.parameters, **same, "angle_columns": given["columns"]}
