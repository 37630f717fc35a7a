"""Rows of different sequences: where each belongs, its rotation, its cache, its attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from arguments import Symbol, tensor, weight
from check import check_op, each, each_float, floats, refuse_op
from int8_caches import int8_cache
from row_cases import (
    ANGLES,
    ATTEND,
    CAPACITY,
    NO_OPTIONS,
    PLACE,
    PLACES,
    TURN,
    TURNED,
    RowAttention,
    TurnedAttention,
    angles_of,
    caches,
    heads_of,
    places_of,
    turned,
)

from pteron.ops import Target

pytestmark = pytest.mark.kernels

HALF = {"f16": 8e-3}  # keys are rounded before they are multiplied
HEADS = [(4, 2, 8), (3, 3, 16), (8, 2, 64), (5, 1, 6)]


def test_places_of_rows() -> None:
    slots = tensor(values=np.array([3, 0, -1, 4, 1, 99]), dtype="i32")
    tokens = weight(values=np.array([11, 12, 13, 14, 15]), dtype="i32")
    positions = weight(values=np.array([0, 5, 9, 22, 7]), dtype="i32")
    check_op(PLACE, slots, tokens, positions, oracle=places_of, dtype="i32", live={})


@each_float
def test_angles_of_rows(dtype: str) -> None:
    tables = weight(31, 6), weight(31, 6)
    check_op(ANGLES, *tables, tensor(values=PLACES, dtype="i32"), oracle=angles_of, dtype=dtype, live={})


@each_float
@each(("form", "columns"), [("neighbours", 4), ("halves", 8), ("halves", 6)])
def test_rows_are_turned(form: str, columns: int, dtype: str) -> None:
    q, k, _ = heads_of(6, 4, 2, 8)
    angles = tensor(6, 2 * columns, low=-1, high=1)
    check_op(TURN, q, k, angles, form, oracle=turned, dtype=dtype, live={})


@pytest.mark.long(every=10)
@pytest.mark.parametrize(("heads", "key_heads", "head_width"), HEADS)
@pytest.mark.parametrize("scale", [None, 0.31])
def test_attention_of_rows(
    heads: int, key_heads: int, head_width: int, scale: float | None, anywhere: Target
) -> None:
    given = (*heads_of(len(PLACES), heads, key_heads, head_width), *caches(key_heads, head_width))
    places = tensor(values=PLACES, dtype="i32")
    live = {"c": (23, 23)}
    rest = (places, Symbol("c"), scale, *NO_OPTIONS, None)
    check_op(ATTEND, *given, *rest, oracle=RowAttention(), live=live, target=anywhere, tolerance=2e-5)


@pytest.mark.long(every=6)
@floats
@pytest.mark.parametrize(("form", "columns"), [("neighbours", 4), ("halves", 8), ("halves", 6)])
def test_attention_of_turned_rows(form: str, columns: int, dtype: str, anywhere: Target) -> None:
    given = heads_of(len(PLACES), 4, 2, 8)
    angles = tensor(len(PLACES), 2 * columns, low=-1, high=1)
    rest = (*caches(2, 8), tensor(values=PLACES, dtype="i32"), Symbol("c"), None, *NO_OPTIONS)
    check_op(
        TURNED,
        *given,
        angles,
        form,
        *rest,
        oracle=TurnedAttention(),
        live={"c": (23, 23)},
        dtype=dtype,
        target=anywhere,
        tolerance=HALF.get(dtype, 2e-5),
    )


@pytest.mark.long(every=6)
@pytest.mark.parametrize("form", ["neighbours", "halves"])
def test_turned_rows_in_int8_caches(form: str, anywhere: Target) -> None:
    columns = 20 if form == "neighbours" else 36
    angles = tensor(len(PLACES), 2 * columns, low=-1, high=1)
    shape = (7, 23, 2, 40)
    both = [int8_cache(np.random.default_rng(seed).uniform(-3, 3, shape)) for seed in range(2)]
    rest = (*both, tensor(values=PLACES, dtype="i32"), Symbol("c"), None, *NO_OPTIONS)
    check_op(
        TURNED,
        *heads_of(len(PLACES), 4, 2, 40),
        angles,
        form,
        *rest,
        oracle=TurnedAttention(),
        live={"c": (23, 23)},
        target=anywhere,
        tolerance=5e-3,  # turned keys may be rounded to a neighbouring code
    )


@pytest.mark.long(every=6)
@pytest.mark.parametrize("form", ["neighbours", "halves"])
def test_turned_rows_in_rings(form: str, anywhere: Target) -> None:
    angles = tensor(6, 2 * (4 if form == "neighbours" else 6), low=-1, high=1)
    places = tensor(values=[[70, 3], [0, 0], [22, 6], [-1, -1], [23, 2], [45, 5]], dtype="i32")
    rest = (*caches(2, 8), places, Symbol("c"), None, 6, None, None, None)
    given = (*heads_of(6, 4, 2, 8), angles, form, *rest)
    check_op(TURNED, *given, oracle=TurnedAttention(99), live={"c": (71, 99)}, target=anywhere)


@pytest.mark.long(every=4)
def test_long_contexts_are_split(anywhere: Target) -> None:
    """Rows that see one key and rows that see a thousand, in one launch; one plan serves a bucket."""
    places = np.array([[1021, 1], [0, 2], [129, 0], [512, 3]], np.int32)
    given = (*heads_of(4, 4, 2, 16), *caches(2, 16, 4, 1024))
    rows = tensor(values=places, dtype="i32")
    check_op(
        ATTEND,
        *given,
        rows,
        Symbol("c"),
        None,
        *NO_OPTIONS,
        None,
        oracle=RowAttention(),
        live={"c": (1022, 1024, 1023)},
        target=anywhere,
        tolerance=2e-5,
        plans=1,
    )


def test_more_keys_than_a_cache_has_are_refused() -> None:
    given = (*heads_of(3, 2, 2, 8), *caches(2, 8))
    places = tensor(values=PLACES[:3], dtype="i32")
    rest = (places, CAPACITY + 1, None, *NO_OPTIONS, None)
    refuse_op(ATTEND, *given, *rest, match="24 keys, the caches hold 23", out=[(1, 3, 2, 8)])


def test_wrong_shapes_of_rows_are_refused() -> None:
    """Caches are those of seven sequences, 23 rows of two heads."""
    (q, k, v), (keys, values) = heads_of(3, 4, 2, 8), caches(2, 8)
    places = tensor(values=PLACES[:3], dtype="i32")

    def refuse(match: str, *given: Any, name: str = ATTEND) -> None:
        arguments = (*given, 9, None, *NO_OPTIONS, *((None,) if name == ATTEND else ()))
        refuse_op(name, *arguments, match=match, out=[(1, 3, 4, 8)])

    of_caches = "keys and values have the heads of their caches"
    for wrong, match in (
        ((q, tensor(1, 3, 4, 8), tensor(1, 3, 4, 8), keys, values, places), of_caches),
        ((q, k, tensor(1, 3, 2, 6), keys, values, places), of_caches),
        ((q, k, v, keys, weight(7, 22, 2, 8), places), "caches are of one shape, of rank 4"),
        ((q, k, v, weight(7, 23, 16), weight(7, 23, 16), places), "caches are of one shape, of rank 4"),
        ((q, k, v, keys, weight(7, 23, 2, 8, dtype="f16"), places), "one element type"),
        ((q, k, v, keys, values, tensor(3, 3, dtype="i32")), r"places are \[rows, 2\]"),
        ((q, k, v, keys, values, tensor(values=PLACES, dtype="i32")), "one row for each place"),
        ((*heads_of(3, 4, 2, 6), keys, values, places), "heads of the caches' width"),
        ((*heads_of(3, 3, 2, 8)[:1], k, v, keys, values, places), "heads of the caches' width"),
    ):
        refuse(match, *wrong)
    angles = tensor(3, 8, low=-1, high=1)
    wide = weight(7, 23, 2, 6)
    given = (q, k, tensor(1, 3, 2, 6), angles, "neighbours", keys, wide, places)
    refuse("keys and values must have one shape", *given, name=TURNED)
    refuse("places are", q, k, v, angles, "halves", keys, values, tensor(6, dtype="i32"), name=TURNED)


@pytest.mark.parametrize(
    ("form", "rows", "columns", "key_width", "match"),
    [
        ("pairs", 3, 8, 8, "the form is one of .*, not 'pairs'"),
        ("halves", 4, 8, 8, "a row for each row of angles"),
        ("halves", 3, 8, 6, "a row for each row of angles"),
        ("halves", 3, 20, 8, "wider than a head"),
        ("halves", 3, 6, 8, "wider than a head"),  # three of eight: no pairs
        ("neighbours", 3, 10, 8, "wider than a head"),
        ("neighbours", 3, 4, 8, "an angle for each pair of a head"),
    ],
)
def test_angles_that_do_not_fit_are_refused(
    form: str, rows: int, columns: int, key_width: int, match: str
) -> None:
    q, k, angles = tensor(1, 3, 4, 8), tensor(1, 3, 2, key_width), tensor(rows, columns)
    refuse_op(TURN, q, k, angles, form, match=match, out=[(1, 3, 4, 8), (1, 3, 2, key_width)])


def test_places_that_do_not_fit_are_refused() -> None:
    slots = tensor(6, dtype="i32")
    for given, lengths, match in (
        (tensor(2, 3, dtype="i32"), ((5,), (5,)), "slots are a list"),
        (slots, ((5,), (4,)), "lists of one length"),
        (slots, ((5, 1), (5, 1)), "lists of one length"),
    ):
        tokens, positions = (weight(*shape, dtype="i32") for shape in lengths)
        refuse_op(PLACE, given, tokens, positions, match=match, out=[(1, 6), (6, 2)], dtype="i32")
    table, places = weight(31, 6), tensor(values=PLACES, dtype="i32")
    refuse_op(ANGLES, table, weight(31, 5), places, match="matrices of one shape", out=[(6, 12)])
    refuse_op(ANGLES, table, table, tensor(6, dtype="i32"), match="places are", out=[(6, 12)])
