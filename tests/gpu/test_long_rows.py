"""Rows and depths longer than one invocation may walk, where adapters end loops silently."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from arguments import Argument, Symbol, tensor, weight
from check import check_op, each
from plane_cases import GROUP, LAYER, RMS
from quantized_cases import AFFINE as QPARAMS
from quantized_cases import DYNAMIC, packed, scales
from quantized_cases import LINEAR as LINEAR_Q4

from pteron.ops import Target

LINEAR, MM, BMM, ADDMM = (f"aten.{name}.default" for name in ("linear", "mm", "bmm", "addmm"))
VOCABULARY = 128_256


@pytest.mark.parametrize("size", [20_000, 65_536, 1 << 20, (1 << 24) + 1])
def test_a_sum_of_ones_counts_them(size: int, target: Target) -> None:
    ones = tensor(values=np.ones(size, np.int32), dtype="i32")
    check_op("aten.sum.dim_IntList", ones, [0], False, None, dtype="i32", out="i32", target=target)


@each("name", ["aten.mean.dim", "aten.amax.default", "aten.amin.default"])
@each(
    ("shape", "dims"),
    [((3, 100_003), [1]), ((70_001, 3), [0]), ((7, 3, 20_011), [0, 2]), ((5, 2, 7, 3, 4_001), [0, 2, 4])],
)
def test_reductions(name: str, shape: tuple[int, ...], dims: list[int], target: Target) -> None:
    rest = (None,) if name == "aten.mean.dim" else ()
    check_op(name, tensor(*shape), dims, False, *rest, target=target)


def test_rows_grow_and_shrink(target: Target) -> None:
    """One part, many parts and none, in one session."""
    live = {"T": (70_001, 1, 4_097, 0, 4_096, 20_011)}
    check_op("aten.mean.dim", tensor(2, "T"), [1], False, None, live=live, target=target)


@each("name", ["aten.amax.default", "aten.amin.default"])
@each("at", [0, 50_000, VOCABULARY - 1])
def test_a_nan_in_a_part(name: str, at: int, target: Target) -> None:
    values = np.arange(VOCABULARY, dtype=np.float32)
    values[at] = math.nan
    check_op(name, tensor(values=values), [0], False, target=target)


@pytest.mark.parametrize("name", ["aten.argmax.default", "aten.argmin.default"])
def test_indices(name: str, target: Target) -> None:
    check_op(name, tensor("S", VOCABULARY), 1, False, live={"S": (3, 1)}, target=target)
    check_op(name, tensor(VOCABULARY, 3), 0, True, target=target)
    check_op(name, tensor(1031, 1033), None, False, target=target)


@each("best", [(0,), (128_000,), (70_000, 5, 100_000), (127_999, 128_255)])
@each("value", [1.0, math.nan, math.inf])
def test_the_first_of_equals(best: tuple[int, ...], value: float, target: Target) -> None:
    values = np.zeros((1, VOCABULARY), np.float32)
    values[0, list(best)] = value
    check_op("aten.argmax.default", tensor(values=values), 1, False, target=target)
    check_op("aten.argmin.default", tensor(values=-values), 1, False, target=target)


@pytest.mark.parametrize("name", ["aten._softmax.default", "aten._log_softmax.default"])
def test_softmax(name: str, target: Target) -> None:
    check_op(name, tensor("S", VOCABULARY), -1, False, live={"S": (3, 1)}, target=target)
    check_op(name, tensor(2, 20_011, 3), 1, False, target=target)
    check_op(name, tensor(1 << 20), 0, False, target=target)


def test_softmax_of_zeros(target: Target) -> None:
    zeros = tensor(values=np.zeros((1, VOCABULARY)))
    check_op("aten._softmax.default", zeros, 1, False, target=target, tolerance=1e-10)


@pytest.mark.parametrize("parameters", [True, False])
def test_layer_norm(parameters: bool, target: Target) -> None:
    scale, shift = (weight(100_003), weight(100_003)) if parameters else (None, None)
    check_op(LAYER, tensor("S", 100_003), [100_003], scale, shift, 1e-5, live={"S": (3, 0, 1)}, target=target)


def test_layer_norm_of_a_million(target: Target) -> None:
    size = (1 << 20) + 7  # too long for 256 lanes too
    check_op(LAYER, tensor(1, size), [size], None, None, 1e-5, target=target)


def test_group_norm(target: Target) -> None:
    arguments = (tensor("S", 4, 131, 211), weight(4), weight(4), Symbol("S"), 4, 131 * 211, 2, 1e-5)
    check_op(GROUP, *arguments, live={"S": (2, 1)}, target=target)


def test_rms_norm(target: Target) -> None:
    for size in (100_003, (1 << 20) + 7):
        check_op(RMS, tensor(2, size), weight(size), 1e-5, target=target)


def test_choose_qparams(target: Target) -> None:
    for size in (100_003, (1 << 20) + 7):
        rest = ("ASYMMETRIC", [1, 1, size], None, -128, 127, None, None, None, False)
        check_op(QPARAMS, tensor(1, 2, size, low=-2, high=3), *rest, target=target)


def small(*shape: int) -> Any:
    return tensor(*shape, low=-1, high=1)


@pytest.mark.long(every=4)
@pytest.mark.parametrize("depth", [40_000, 300_007])
@pytest.mark.parametrize("rows", [1, 3])
def test_thin_products(rows: int, depth: int, target: Target) -> None:
    added = weight(5, low=-9, high=9)
    matrix = weight(5, depth, low=-1, high=1)
    check_op(LINEAR, small(rows, depth), matrix, added, target=target, tolerance=1e-3)
    check_op(MM, small(rows, depth), small(depth, 5), target=target, tolerance=1e-3)
    arguments = (tensor(rows, 1), small(rows, depth), small(depth, 5))
    check_op(ADDMM, *arguments, -3, 0.5, target=target, tolerance=1e-3)


def test_products(target: Target) -> None:
    check_op(MM, small(5, 13_001), small(13_001, 3), target=target, tolerance=1e-3)
    check_op(BMM, small(2, 5, 13_001), small(2, 13_001, 3), target=target, tolerance=1e-3)
    check_op(ADDMM, tensor(3), small(5, 13_001), small(13_001, 3), 2, 0.5, target=target, tolerance=1e-3)


@each("group", [32, 96, 136])  # 4, 12 and 17 words
def test_products_with_4_bit_weights(group: int, target: Target) -> None:
    depth = 131_076  # ends within a word and within a group
    arguments: tuple[Argument, ...] = (weight(values=packed(3, depth), dtype="u8"), scales(depth, group, 3))
    check_op(LINEAR_Q4, small(2, depth), *arguments, group, weight(4), target=target, tolerance=1e-3)


def test_tiles_of_4_bit_weights(target: Target) -> None:
    depth = 60_004
    arguments = (weight(values=packed(3, depth), dtype="u8"), scales(depth, 32, 3), 32, weight(4))
    check_op(LINEAR_Q4, small(5, depth), *arguments, target=target, tolerance=1e-3)


def test_products_of_dynamic_activations(target: Target) -> None:
    depth = 65_536
    arguments = (
        small(3, depth),
        tensor(values=[0.0078125, 0.00390625, 0.015625]),
        tensor(values=[3, -7, 0], dtype="i8"),
        weight(values=packed(3, depth), dtype="u8"),
        weight(2, 4, dtype="i32", low=0, high=9),
        scales(depth, 64, 3),
        64,
        weight(4),
    )
    check_op(DYNAMIC, *arguments, target=target, tolerance=1e-3)
