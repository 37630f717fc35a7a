"""Joins of products with 4-bit weights and the launches that follow them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pteron.ops import Dispatch
from pteron.ops.dispatch import elements
from pteron.ops.rewrite import IsRead, join, same_memory
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

# The library that processes a row, by the kernel that reads rows from memory.
_ROWS = {"rms_norm_registers": "row_normed", "quantize_rows": "row_int8"}
# Functions that write to an output, if no later launch reads it.
_UNWRITTEN = {"put_quad": "return;", "store_gated_pair": "return;"}
# Outputs of the product that computes queries, keys and values, and their names in a rotation.
_MADE = {"out": "q", "out_b": "k", "out_c": "v"}
_TILES = ("q4_tiled", "q4_int8", "q4_rows")  # kernels that end with fours of neighbouring columns
_OF_OUTPUTS = ("OTHERS", "WIDTH_B", "store_other")  # declarations of products with several outputs


@join("merge_rows")
def merge_rows(first: Dispatch, second: Dispatch, is_read: IsRead) -> Dispatch | None:
    """The parts of a product merged, and its rows normed or made int8."""
    if first.kernel.name != "q4_merge_quads" or second.kernel.name not in _ROWS:
        return None
    out, rows = first.bindings["out"], first.parameters["rows"]
    is_alone = "out_b" not in first.bindings
    if not is_alone or not same_memory(out, second.bindings["x"]) or rows != second.parameters["rows"]:
        return None
    declarations: dict[str, Any] = {**dict(first.kernel.declarations), **dict(second.kernel.declarations)}
    arguments: dict[str, Any] = {**first.bindings, **second.bindings, **first.parameters, "x": None}
    if not is_read(out):
        declarations |= _UNWRITTEN | {"R": out.storage}
        arguments["out"] = None
    joined = kernel("q4_merge_rows", use_row_normed=_ROWS[second.kernel.name], **declarations)
    return Dispatch(joined, **arguments, groups=second.groups)


@join("merge_rope")
def merge_rope(first: Dispatch, second: Dispatch, is_read: IsRead) -> Dispatch | None:
    """The parts of queries, keys and values merged, rotated by their position and written to their caches."""
    if first.kernel.name != "q4_merge_quads" or not _turns(first, second, is_read, 8):
        return None
    declarations, arguments = _rotated(first, second)
    outputs = arguments["rows"] * arguments["columns"]
    return Dispatch(kernel("q4_merge_rope", **declarations), **arguments, threads=outputs // 8)


@join("tile_rope")
def tile_rope(first: Dispatch, second: Dispatch, is_read: IsRead) -> Dispatch | None:
    """The same of tiles that are not split, where neighbours rotate one another: an invocation has both."""
    if first.kernel.name not in _TILES or not _turns(first, second, is_read, 4):
        return None
    declarations, arguments = _rotated(first, second)
    if declarations.get("use_q4_result") != "q4_quads" or "HALVED" in declarations:
        return None
    declarations |= {"use_q4_result": "q4_quads_rope", "use_q4_sizes": "q4_sizes_rope"}
    return Dispatch(kernel(first.kernel.name, **declarations), **arguments, groups=first.groups)


@join("embedding_product")
def embedding_product(first: Dispatch, second: Dispatch, is_read: IsRead) -> Dispatch | None:
    """An embedding and a product of its few rows: every workgroup of the product reads the table."""
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


def _turns(first: Dispatch, second: Dispatch, is_read: IsRead, quantum: int) -> bool:
    """Whether the second launch rotates the queries and keys of the first and copies its values, no other
    launch reads them, and heads are multiples of `quantum` columns."""
    if second.kernel.name != "rope" or not first.bindings.keys() >= _MADE.keys():
        return False
    if not second.bindings.keys() >= set(_MADE.values()):
        return False
    given: Mapping[str, Any] = second.parameters
    rows, width = first.parameters["rows"], given["width"]
    heads = given["heads"], given["key_heads"], given["key_heads"]
    return (
        all(same_memory(first.bindings[made], second.bindings[read]) for made, read in _MADE.items())
        and all(
            elements(first.bindings[made]) == rows * each * width
            for made, each in zip(_MADE, heads, strict=True)
        )
        and width % quantum == given["rotary"] % quantum == 0
        and not any(is_read(first.bindings[made]) for made in _MADE)
    )


def _rotated(first: Dispatch, second: Dispatch) -> tuple[dict[str, Any], dict[str, Any]]:
    """Declarations and arguments of a product whose columns are rotated (lib/q4_quads_rope.wgsl)."""
    given: Mapping[str, Any] = second.parameters
    kept = {name: text for name, text in first.kernel.declarations if name not in _OF_OUTPUTS}
    declarations = {
        **kept,
        **dict(second.kernel.declarations),
        "HEAD_WIDTH": given["width"],
        "ROTARY": given["rotary"],
        "QUERIES": given["heads"] * given["width"],
        "KEYS": given["key_heads"] * given["width"],
    }
    bound = {**first.bindings, **second.bindings}
    same = {
        name: given[name] for name in ("steps", "rotary", "start", "place", "out_stride", "angle_strides")
    }
    arguments = {name: each for name, each in bound.items() if name not in (*_MADE, *_MADE.values())}
    return declarations, {**arguments, **first.parameters, **same, "angle_columns": given["columns"]}
