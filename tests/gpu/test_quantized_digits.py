"""Products with 4-bit weights by whole numbers: few rows, every group size, odd columns, deep and shallow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from arguments import Array, tensor, weight
from check import check_op, draw_runs
from one_operator import OneOperator
from quantized_cases import DYNAMIC, LINEAR, packed, scales

from pteron.dtypes import DType
from pteron.families.quantized import digits
from pteron.families.quantized.packing import PackedWeights
from pteron.ops import Target
from pteron.reference.products import linear_q4

pytestmark = pytest.mark.kernels

FEW = {"M": (4, 1, 2, 3)}
EXACT = 2e-6  # of a row's largest output


def check(x: Any, columns: int, depth: int, group: int, target: Target, **options: Any) -> None:
    """Within EXACT of float64, relative to the largest output, which is about 1."""
    size = 1 / np.sqrt(depth) / 20
    weights = packed(columns, depth)
    groups = weight(-(-depth // group), -(-columns // 4) * 4, low=0.5 * size, high=size)
    options = {"live": FEW, "tolerance": EXACT, "bias": None, **options}
    bias = options.pop("bias")
    arguments = weight(values=weights, dtype="u8"), groups, group, bias
    check_op(LINEAR, x, *arguments, target=target, **options)


@pytest.mark.long(every=4)
@pytest.mark.parametrize(("group", "columns"), [(32, 129), (64, 67), (128, 7), (256, 1)])
def test_columns_and_groups(group: int, columns: int, few: Target) -> None:
    check(tensor("M", 2 * group), columns, 2 * group, group, few, bias=weight(132))


@pytest.mark.long(every=10)
@pytest.mark.parametrize("depth", [4, 40, 100, 324, 1000, 2048, 8 * 1009])
def test_depths(depth: int, few: Target) -> None:
    """Rows that end within a word, a chunk, a group, a step; one lane or several subgroups to a column."""
    check(tensor("M", depth, low=-1, high=1), 13, depth, 64, few)


@pytest.mark.long(every=5)
@pytest.mark.parametrize(
    "layout", [(1, 1, 1, 1), (2, 3, 2, 1), (4, 2, 4, 3), (1, 5, 4, 2), (8, 1, 1, 2)], ids=str
)
def test_layouts(layout: tuple[int, ...], few: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits, "layout_of", lambda *_: digits.Layout(*layout))
    check(tensor("M", 296), 67, 296, 32, few, bias=weight(68))


def test_float_types(few: Target) -> None:
    check(tensor(1, "M", 64), 13, 64, 32, few, dtype="f16", tolerance=2e-3)


def test_many_columns_in_a_folded_grid(few: Target) -> None:
    narrow = replace(few, workgroups_max=23)
    check(tensor("M", 32), 8209, 32, 32, narrow, live={"M": (2, 1)})


def test_rows_one_by_one_where_memory_is_short(few: Target) -> None:
    depth = 2048
    short = replace(few, workgroup_bytes_max=16384)
    check(tensor("M", depth), 5, depth, 64, short)


def test_two_planes(few: Target) -> None:
    check(tensor("M", 296), 13, 296, 32, replace(few, digits=2), tolerance=2e-4)


def outputs_of(x: Array, target: Target) -> tuple[Array, Array]:
    """What the operator gives for x in groups of 32, and what float64 gives."""
    weights, groups = packed(9, x.shape[1]), np.full((x.shape[1] // 32, 12), 0.01, np.float32)
    arguments = [tensor(values=x), weight(values=weights, dtype="u8"), weight(values=groups), 32, None]
    (run,) = draw_runs(arguments, {}, "f32")
    operator = OneOperator(LINEAR, arguments, run, [((len(x), 9), DType.F32)], target)
    (found,) = operator.run(run)
    operator.close()
    wide, whole, scale = x.astype(np.float32).astype(float), weights.astype(int), groups.astype(float)
    exact = linear_q4(torch.from_numpy(wide), torch.from_numpy(whole), torch.from_numpy(scale), 32, None)
    return found, exact.numpy()


def test_a_wide_range(few: Target) -> None:
    """From 1e-30 to 1e30 in one row, with zeros in between; rows of nothing, and of small numbers alone."""
    x = np.random.default_rng(3).normal(size=(4, 640)) * 10.0 ** np.linspace(-30, 30, 640)
    x[0, 100:200] = 0
    x[1] = 0
    x[2, 32:] = 0
    x[3] = x[3, ::-1]
    found, wide = outputs_of(x, few)
    largest = np.abs(wide).max(axis=1, keepdims=True)
    assert np.all(np.abs(found - wide) <= EXACT * largest)
    assert largest[2] > 0 == largest[1]


@pytest.mark.long(every=2)
@pytest.mark.parametrize(
    ("size", "kept"), [(2e38, EXACT), (1e37, EXACT), (1e-29, EXACT), (1e-30, 1), (1e-36, 1), (1e-42, 1)]
)
def test_the_ends_of_the_range(size: float, kept: float, few: Target) -> None:
    """Large x count in full. Small ones are zeros, where a device has no denormals from 1e-30 on; nothing
    becomes infinite or NaN."""
    x = np.random.default_rng(5).uniform(-1, 1, (4, 320)) * size
    found, wide = outputs_of(x, few)
    assert np.isfinite(found).all()
    assert np.all(np.abs(found - wide) <= kept * np.abs(wide).max(axis=1, keepdims=True))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_makes_its_row_none(value: float, few: Target) -> None:
    x = np.random.default_rng(3).normal(size=(3, 96))
    x[1, 50] = value
    found, wide = outputs_of(x, few)
    assert np.isnan(found[1]).all()
    np.testing.assert_allclose(found[::2], wide[::2], atol=1e-5)


@pytest.mark.long(every=2)
@pytest.mark.parametrize("bias", [True, False])
def test_dynamic_activations(bias: bool, few: Target) -> None:
    arguments = (
        tensor("M", 72, low=-1, high=1),
        tensor("M", low=0.007, high=0.009),
        tensor("M", dtype="i8", low=-128, high=127),
        weight(values=packed(13, 72), dtype="u8"),
        weight(2, 16, dtype="i32", low=0, high=9),
        scales(72, 32, 13),
        32,
        weight(16) if bias else None,
    )
    check_op(DYNAMIC, *arguments, live=FEW, target=few, tolerance=1e-3)


@pytest.mark.parametrize(
    "change",
    [
        {"subgroup_size": 0},
        {"is_cpu": True},
        {"packed_dots": False},
        {"workgroup_bytes_max": 4096},
    ],
    ids=str,
)
def test_what_it_does_not_suit(change: dict[str, Any]) -> None:
    target = Target(is_cpu=False, subgroup_size=32, workgroup_bytes_max=16384)
    words = PackedWeights(Any, Any, 64, 2048, 256, 8)  # type: ignore[arg-type]  # what is packed does not matter
    assert digits.suits(target, 4, words)
    assert not digits.suits(replace(target, **change), 4, words)
    assert not digits.suits(target, 5, words)
    for other in (
        replace(words, group=6),
        replace(words, group=2),
        replace(words, pitch=258),
        replace(words, depth=0),
    ):
        assert not digits.suits(target, 4, other)
