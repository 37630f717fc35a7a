"""Joins of products with 4-bit weights and the launches before or after them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pteron.ops import Dispatch
from pteron.ops.dispatch import elements
from pteron.ops.rewrite import IsRead, join, same_memory
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

_ROW_KERNELS = ("norm_registers", "quantize_rows")  # kernels that hold rows in registers
# Names of queries, keys and values in the product that computes them, and in the rotation.
_QKV = {"out": "q", "out_b": "k", "out_c": "v"}
_QUAD_KERNELS = ("q4_tiled", "q4_matrix", "q4_int8", "q4_rows")  # kernels that store quads of columns
_ROPE_PARAMETERS = ("steps", "rotary", "start", "cache_start", "out_stride", "angle_strides")


@join("merge_rows")
def merge_rows(first: Dispatch, second: Dispatch, is_read: IsRead) -> Dispatch | None:
    """Merge the parts of a product, and norm its rows or convert them to int8."""
    is_of_rows = second.kernel.name in _ROW_KERNELS and "mean" not in second.bindings
    if not _merges_quads(first) or not is_of_rows:
        return None
    out, rows = first.bindings["out"], first.parameters["rows"]
    is_single = "out_b" not in first.bindings
    if not is_single or not same_memory(out, second.bindings["x"]) or rows != second.parameters["rows"]:
        return None
    arguments = {**first.arguments, **second.arguments, "x": None}
    if not is_read(out):
        arguments |= {"out": None, "R": out.storage}  # rows are rounded to this type nevertheless
    return Dispatch(kernel("q4_merge_rows"), **arguments, groups=second.groups)


@join("merge_rope")
def merge_rope(first: Dispatch, second: Dispatch, is_read: IsRead) -> Dispatch | None:
    """Merge the parts of queries, keys and values, rotate them and write them to their caches."""
    if not _merges_quads(first) or not _is_rope_of(first, second, is_read, 8):
        return None
    arguments = _rope_arguments(first, second)
    return Dispatch(
        kernel("q4_merge_rope"), **arguments, threads=arguments["rows"] * arguments["columns"] // 8
    )


@join("tile_rope")
def tile_rope(first: Dispatch, second: Dispatch, is_read: IsRead) -> Dispatch | None:
    """The same for a product that is not split, if neighbouring columns are rotated together: an invocation
    has both."""
    if first.kernel.name not in _QUAD_KERNELS or not _is_rope_of(first, second, is_read, 4):
        return None
    arguments = _rope_arguments(first, second)
    if arguments["BY_QUADS"] != "true" or arguments["HALVED"] == "true":
        return None
    return Dispatch(kernel(first.kernel.name), **arguments, groups=first.groups)


@join("embedding_product")
def embedding_product(first: Dispatch, second: Dispatch, is_read: IsRead) -> Dispatch | None:
    """An embedding and a product of its few rows: each workgroup of the product reads the table."""
    if first.kernel.name != "embedding_q4" or second.kernel.name != "q4_digits":
        return None
    out, x = first.bindings["out"], second.bindings.get("x")
    given, taken = first.arguments, second.arguments
    if x is None or not same_memory(out, x) or 2 * int(given["TABLE_WORDS"]) != int(taken["QUADS"]):
        return None
    picked = {name: each for name, each in given.items() if name not in ("out", "count")}
    return Dispatch(second.kernel, **{**picked, **taken}, groups=second.groups)


def _merges_quads(first: Dispatch) -> bool:
    return first.kernel.name == "q4_merge" and first.arguments["BY_QUADS"] == "true"


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


def _rope_arguments(first: Dispatch, second: Dispatch) -> dict[str, Any]:
    """Arguments of a product that rotates its columns (lib/q4_quads_rope.wgsl)."""
    given: Mapping[str, Any] = second.parameters
    gone = (*_QKV, *_QKV.values(), "OTHERS", "WIDTH_B")
    both = {**first.arguments, **second.bindings, **dict(second.kernel.given)}
    return {
        **{name: each for name, each in both.items() if name not in gone},
        **{name: given[name] for name in _ROPE_PARAMETERS},
        "angle_columns": given["columns"],
        "HEAD_WIDTH": given["width"],
        "ROTARY": given["rotary"],
        "QUERIES": given["heads"] * given["width"],
        "KEYS": given["key_heads"] * given["width"],
    }
