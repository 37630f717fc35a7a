"""Rotary embeddings in their three forms: pairs of neighbours, of halves, and by a table of pairs."""

from __future__ import annotations

from typing import Any

import pytest
from arguments import Symbol, tensor, weight
from attention_cases import POSITIONS, ROPE, ROPE_HF, ROPE_INTERLEAVED
from check import check_op, each, each_float, refuse_op

from pteron.ops import Target
from pteron.reference.attention import rope

ROPE_SLICE = "pteron.rope_slice"


@each_float
@each("width", [2, 6, 64])
@each(("heads", "key_heads"), [(1, 1), (6, 2)])
def test_rope(width: int, heads: int, key_heads: int, dtype: str) -> None:
    tables = (tensor("S", width // 2, low=-1, high=1), tensor("S", width // 2, low=-1, high=1))
    check_op(
        ROPE,
        tensor(2, "S", heads, width),
        tensor(2, "S", key_heads, width),
        *tables,
        dtype=dtype,
    )


# Shapes of cosines and sines that broadcast to [batch, steps, heads, width / 2]; queries have 3 heads.
TABLES: dict[str, list[tuple[int | str, ...]]] = {
    "by head": [("S", 3, 5)] * 2,
    "cosines by head": [("S", 3, 5), ("S", 5)],
    "sines by head": [("S", 5), ("S", 3, 5)],
    "of one head": [("S", 1, 5)] * 2,
    "of one batch": [(1, "S", 5), (1, "S", 1, 5)],
    "by batch": [(2, "S", 5)] * 2,
    "by batch and head": [(2, "S", 3, 5), (2, "S", 1, 5)],
}


@each_float
@each("form", TABLES)
def test_tables_of_more_dims(form: str, dtype: str, target: Target) -> None:
    tables = (tensor(*shape, low=-1, high=1) for shape in TABLES[form])
    heads = tensor(2, "S", 3, 10)
    check_op(ROPE, heads, heads, *tables, dtype=dtype, target=target, live={"S": (7, 1, 5)})


@each_float
@each(("width", "rotary"), [(6, 6), (10, 6), (7, 4), (64, 64), (5, 0)])
def test_rope_hf(width: int, rotary: int, dtype: str) -> None:
    tables = (weight(23, rotary, low=-1, high=1), weight(23, rotary, low=-1, high=1))
    arguments = (tensor(2, "S", 4, width), tensor(2, "S", 2, width), *tables, Symbol("p"))
    check_op(ROPE_HF, *arguments, live=POSITIONS, dtype=dtype)


def test_a_moving_start_takes_no_new_plan() -> None:
    tables = (weight(23, 6), weight(23, 6))
    live = {"S": (1,), "p": (0, 1, 2, 22, 7)}
    arguments = (tensor(1, "S", 2, 6), tensor(1, "S", 1, 6), *tables, Symbol("p"))
    check_op(ROPE_HF, *arguments, live=live, plans=0)


@each_float
@each("shape", [("S", 6), (2, "S", 8), (2, 3, "S", 4)])
def test_rope_interleaved(shape: tuple[int | str, ...], dtype: str) -> None:
    table = tensor(*shape[-2:], low=-1, high=1)
    check_op(ROPE_INTERLEAVED, tensor(*shape), table, dtype=dtype)


def test_queries_and_keys_of_other_batches_and_widths() -> None:
    tables = (weight(23, 6, low=-1, high=1), weight(23, 6, low=-1, high=1))
    for keys in (tensor(3, "S", 2, 10), tensor(2, "S", 2, 7)):
        arguments = (tensor(2, "S", 4, 10), keys, *tables, Symbol("p"))
        check_op(ROPE_HF, *arguments, live=POSITIONS)


# In a slice of the tables: from a live start, from the end, all of it.
SLICES = [(Symbol("p"), Symbol("e")), (Symbol("p"), None), (-7, None), (None, Symbol("e"))]


@pytest.mark.parametrize(("start", "end"), SLICES, ids=str)
def test_rope_of_a_slice(start: Any, end: Any) -> None:
    tables = (weight(23, 3, low=-1, high=1), weight(23, 3, low=-1, high=1))
    arguments = (tensor(2, "S", 4, 6), tensor(2, "S", 2, 6), *tables, start, end)

    def sliced(xq: Any, xk: Any, cosines: Any, sines: Any, start: Any, end: Any) -> Any:
        return rope(xq, xk, cosines[start:end], sines[start:end])

    both = isinstance(start, Symbol) and isinstance(end, Symbol)
    moving = {"S": (5, 1, 7, 3), "p": (0, 5, 16, 1), "e": (5, 6, 23, 4)}
    fixed = {"S": (7, 7), "p": (16, 16), "e": (7, 7)}
    check_op(ROPE_SLICE, *arguments, oracle=sliced, live=moving if both else fixed)


def test_refusals_of_slices() -> None:
    q, k, table = tensor(1, 3, 4, 6), tensor(1, 3, 2, 6), weight(5, 3)
    both = ((1, 3, 4, 6), (1, 3, 2, 6))
    refuse_op(ROPE_SLICE, q, k, table, table, 3, 6, out=both, match=r"must be \[3, 3\] or .*\[5, 3\]")
    refuse_op(ROPE_SLICE, q, k, table, table, None, None, out=both, match=r"must be \[3, 3\] or")


def test_refusals() -> None:
    q, k = tensor(1, 3, 4, 6), tensor(1, 3, 2, 6)
    both = ((1, 3, 4, 6), (1, 3, 2, 6))
    table = weight(3, 3)
    refuse_op(
        ROPE, q, k, table, weight(3, 2), out=both, match=r"must be \[3, 3\] or \[3, 4, 3\]; got .*\[3, 2\]"
    )
    refuse_op(ROPE, q, k, weight(3, 4, 3), weight(3, 4, 3), out=both, match=r"or \[3, 2, 3\]; got")
    refuse_op(ROPE, q, k, weight(2, 3, 3), table, out=both, match=r"must broadcast to .*\[2, 3, 3\]")
    refuse_op(ROPE, q, tensor(1, 2, 2, 6), table, table, out=both, match=r"same steps; got .*\[1, 2, 2, 6\]")
    refuse_op(ROPE, tensor(3, 4, 6), k, table, table, out=both, match=r"width\]; got .*\[3, 4, 6\]")
    refuse_op(ROPE_HF, q, k, weight(3, 6), weight(3, 4), 0, out=both, match=r"one shape; got .*\[3, 6\]")
    refuse_op(ROPE_HF, q, k, weight(3, 8), weight(3, 8), 0, out=both, match="wider than a head")
    refuse_op(
        ROPE_HF, q, k, weight(5, 6), weight(5, 6), 3, out=both, match="positions 3 to 6 leave the table"
    )
    refuse_op(
        ROPE_INTERLEAVED, tensor(3, 5), tensor(3, 5), out=((3, 5),), match=r"width even; got .*\[3, 5\]"
    )
    refuse_op(ROPE_INTERLEAVED, tensor(3, 6), tensor(2, 6), out=((3, 6),), match=r"columns; got .*\[2, 6\]")
