"""4-bit weights in groups, dynamic 8-bit activations: against the dequantised product in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from arguments import tensor, weight
from check import check_op, each, each_float, refuse_op
from quantized_cases import DYNAMIC, EMBEDDING, EMBEDDING_4BIT, LINEAR, packed, scales, sums

from pteron.families.quantized.linear_q4 import BLOCK_WORDS, thread_cut
from pteron.ops import Target

pytestmark = pytest.mark.kernels

LIVE_ROWS = {"M": (67, 1, 33, 2, 5, 3, 17, 4)}


@pytest.mark.long(every=12)
@pytest.mark.parametrize("group", [32, 64, 128, 256])
@pytest.mark.parametrize("columns", [1, 67, 130])
def test_linear(group: int, columns: int, target: Target) -> None:
    arguments = (weight(values=packed(columns, 2 * group), dtype="u8"), scales(2 * group, group, columns))
    x = tensor("M", 2 * group, low=-1, high=1)
    check_op(LINEAR, x, *arguments, group, None, live=LIVE_ROWS, target=target, tolerance=1e-4)


@pytest.mark.long(every=3)
@pytest.mark.parametrize(
    "depth", [36, 100, 324]
)  # four more than a multiple of eight; the last group is short
def test_rows_that_end_within_a_word(depth: int, target: Target) -> None:
    arguments = (weight(values=packed(13, depth), dtype="u8"), scales(depth, 32, 13), 32, weight(16))
    x = tensor("M", depth, low=-1, high=1)
    check_op(LINEAR, x, *arguments, live=LIVE_ROWS, target=target, tolerance=1e-4)


@each_float
def test_linear_in_float_types(dtype: str, target: Target) -> None:
    arguments = (weight(values=packed(13, 64), dtype="u8"), scales(64, 32, 13), 32, weight(16))
    x = tensor(2, "M", 64, low=-1, high=1)
    live = {"M": (33, 1, 5)}
    tolerance = 1e-4 if dtype == "f32" else 1e-2
    check_op(LINEAR, x, *arguments, live=live, dtype=dtype, target=target, tolerance=tolerance)


def test_many_columns(target: Target) -> None:
    """Enough for bundles of four, in a folded grid."""
    columns, narrow = 8209, replace(target, workgroups_max=53)
    arguments = (weight(values=packed(columns, 32), dtype="u8"), scales(32, 32, columns), 32, None)
    x = tensor("M", 32, low=-1, high=1)
    check_op(LINEAR, x, *arguments, live={"M": (1,)}, target=narrow, tolerance=1e-4)


def test_no_rows(target: Target) -> None:
    arguments = (weight(values=packed(5, 32), dtype="u8"), scales(32, 32, 5), 32, None)
    check_op(
        LINEAR,
        tensor("M", 32),
        *arguments,
        live={"M": (3, 0, 1)},
        target=target,
        tolerance=1e-4,
    )


def test_linear_refuses() -> None:
    good = (weight(values=packed(5, 32), dtype="u8"), scales(32, 32, 5))
    refuse_op(LINEAR, tensor(3, 32), *good, 12, None, match="multiple of 8", out=[(3, 5)])
    refuse_op(LINEAR, tensor(3, 64), *good, 32, None, match="must cover x's columns", out=[(3, 5)])
    refuse_op(LINEAR, tensor(3, 0), *good, 32, None, match="something to add up", out=[(3, 5)])
    few = weight(1, 4)
    refuse_op(LINEAR, tensor(3, 32), good[0], few, 32, None, match="scales must be", out=[(3, 5)])
    from_the_call = tensor(5, 16, dtype="u8", low=0, high=255)
    refuse_op(
        LINEAR, tensor(3, 32), from_the_call, good[1], 32, None, match="must be a constant", out=[(3, 5)]
    )


@pytest.mark.long(every=2)
@pytest.mark.parametrize("bias", [True, False])
def test_dynamic_activations(bias: bool, target: Target) -> None:
    arguments = (
        tensor("M", 64, low=-1, high=1),
        tensor("M", low=0.007, high=0.009),
        tensor("M", dtype="i8", low=-20, high=20),
        weight(values=packed(13, 64), dtype="u8"),
        sums(13, 64, 32),
        scales(64, 32, 13),
        32,
        weight(16) if bias else None,
    )
    check_op(DYNAMIC, *arguments, live=LIVE_ROWS, target=target, tolerance=1e-3)


@each("linear_order", [True, False])
@each("group", [32, 64])
@each_float
def test_embedding(linear_order: bool, group: int, dtype: str, target: Target) -> None:
    arguments = (
        weight(values=packed(131, 64), dtype="u8"),
        weight(131, 64 // group, low=0.01, high=0.2),
        group,
        tensor(1, "S", dtype="i64", low=0, high=130),
        linear_order,
    )
    tolerance = 1e-5 if dtype == "f32" else 2e-3
    check_op(EMBEDDING, *arguments, dtype=dtype, target=target, tolerance=tolerance)


def test_embedding_of_a_large_vocabulary() -> None:
    size = 128_256
    arguments = (
        weight(values=packed(size, 32), dtype="u8"),
        weight(size, 1, low=0.01, high=0.2),
        32,
        tensor(values=[[0, 1, 127_999, size - 1]], dtype="i64"),
        True,
    )
    check_op(EMBEDDING, *arguments)


@each("scales_shape", [(13,), (13, 1), (13, 2), (13, 7)])
@each("zeros", [True, False])
@each_float
def test_embedding_4bit(scales_shape: tuple[int, ...], zeros: bool, dtype: str, target: Target) -> None:
    """Rows that are no whole words, groups that end within a byte."""
    bytes = np.random.default_rng(1).integers(0, 256, (13, 7)).astype(np.uint8)
    check_op(
        EMBEDDING_4BIT,
        weight(values=bytes, dtype="u8"),
        weight(*scales_shape, low=0.01, high=0.2),
        weight(*scales_shape, dtype="i8", low=-8, high=7) if zeros else None,
        *(-8, 7, tensor(1, "S", dtype="i64", low=0, high=12), None),
        dtype=dtype,
        target=target,
    )


def test_embedding_4bit_refuses() -> None:
    weights, indices = weight(3, 4, dtype="u8", low=0, high=255), tensor(2, dtype="i64", low=0, high=2)
    few, uneven = weight(2), weight(3, 3)
    out = [(2, 8)]
    good = weight(3, 2)
    refuse_op(EMBEDDING_4BIT, weights, good, None, 0, 15, indices, None, match="between -8 and 7", out=out)
    for wrong in (few, uneven):
        match = "groups a divisor of the width"
        refuse_op(EMBEDDING_4BIT, weights, wrong, None, -8, 7, indices, None, match=match, out=out)
    match = "must be as many"
    refuse_op(EMBEDDING_4BIT, weights, good, weight(3), -8, 7, indices, None, match=match, out=out)
    flat = weight(12, dtype="u8", low=0, high=255)
    refuse_op(EMBEDDING_4BIT, flat, good, None, -8, 7, indices, None, match="width / 2", out=out)


# Strips of columns, and groups of any whole words -------------------------------------------------


@pytest.mark.long(every=6)
@pytest.mark.parametrize("group", [8, 16, 24, 40, 32])
def test_groups_of_any_whole_words(group: int, target: Target) -> None:
    """Four consecutive words may span several groups, and the last block of four may be partial."""
    depth = 3 * group
    arguments = (weight(values=packed(37, depth), dtype="u8"), scales(depth, group, 37))
    x = tensor("M", depth, low=-1, high=1)
    check_op(LINEAR, x, *arguments, group, None, live={"M": (5, 1, 3)}, target=target)


@pytest.mark.long(every=2)
@pytest.mark.parametrize("columns", [1, 7, 129, 1031])
def test_strips_cover_all_columns(columns: int, target: Target) -> None:
    arguments = (weight(values=packed(columns, 32), dtype="u8"), scales(32, 32, columns))
    x = tensor("M", 32, low=-1, high=1)
    check_op(LINEAR, x, *arguments, 32, None, live={"M": (9, 1, 2)}, target=target)


def test_an_invocation_stays_below_the_limit_of_loops() -> None:
    for rows in (1, 2, 3, 4, 67):
        declarations, words = thread_cut(rows, 1 << 20)
        tile, wide = declarations["TILE"], declarations["WIDE"]
        assert words % BLOCK_WORDS == 0
        assert words // BLOCK_WORDS * (8 + wide) * (1 + tile) + tile * (1 + wide) < 65535
