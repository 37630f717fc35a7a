"""Products with 4-bit weights for some rows: every strip, group size and load, odd sizes, split k, gates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from arguments import tensor, weight
from check import check_op, each
from fused_cases import CASES
from fused_cases import check as check_fused
from quantized_cases import LINEAR, packed
from subgroup_fixtures import skip_if_narrow

from pteron.families.quantized import tiles
from pteron.families.quantized.packing import PackedWeights
from pteron.families.quantized.tiles import Strip
from pteron.ops import Target, Weight

pytestmark = pytest.mark.kernels

EXACT = 4e-6  # of a row's largest output
MORE = (Strip(8, 1), Strip(16, 4, 8), Strip(32, 2, 32))  # that no product chooses


@pytest.fixture
def some(own_subgroups: Target, launched: set[str]) -> Iterator[Target]:
    """A target with subgroups, on which the kernel must be launched."""
    skip_if_narrow(own_subgroups)
    yield replace(own_subgroups, workgroup_bytes_max=49152)
    assert "q4_rows" in launched


def check(columns: int, depth: int, group: int, target: Target, **options: Any) -> None:
    """Within EXACT of float64, relative to the largest output, which is about 1."""
    size = 1 / np.sqrt(depth) / 20
    groups = weight(-(-depth // group), -(-columns // 4) * 4, low=0.5 * size, high=size)
    options = {"live": {"M": (8, 5, 7)}, "tolerance": EXACT, "bias": None, **options}
    bias = options.pop("bias")
    arguments = weight(values=packed(columns, depth), dtype="u8"), groups, group, bias
    check_op(LINEAR, tensor("M", depth, low=-1, high=1), *arguments, target=target, **options)


@pytest.mark.long(every=6)
@pytest.mark.parametrize(("group", "columns"), [(8, 4), (16, 68), (32, 129), (64, 67), (128, 7), (256, 1)])
def test_columns_and_groups(group: int, columns: int, some: Target) -> None:
    check(columns, 2 * group, group, some, bias=weight(132))


@pytest.mark.long(every=4)
@pytest.mark.parametrize("depth", [4, 100, 1000, 8 * 257])
def test_depths(depth: int, some: Target) -> None:
    """Rows that end within a word, a load, a group, a step."""
    check(13, depth, 64, some)


@pytest.mark.long(every=9)
@pytest.mark.parametrize(
    ("strip", "parts"),
    [(strip, 1 + place % 2 * 2) for place, strip in enumerate((*tiles.STRIPS, *MORE))],
    ids=str,
)
def test_strips(strip: Strip, parts: int, some: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, with rows for one and more, whole or split into parts that do not fill the depth."""
    monkeypatch.setattr(tiles, "choose_strip", lambda *_: (strip, parts))
    depth = 8 * 3 * strip.step_words - 8 * (parts > 1)
    check(70, depth, 32, some, live={"M": (33, 5, 31)}, bias=weight(72))


def test_rows_of_every_number(some: Target) -> None:
    check(68, 96, 32, some, live={"M": (32, 5, 9, 16, 17, 25)}, bias=weight(68))


def test_float_types(some: Target) -> None:
    check(13, 64, 32, some, dtype="f16", tolerance=2e-3)


def test_many_columns_in_a_folded_grid(some: Target) -> None:
    check(1999, 32, 32, replace(some, workgroups_max=7))


def test_rows_with_infinities_and_nans(some: Target) -> None:
    """Padding after the end of a row counts as zero, even if the last values of the row are inf or NaN."""
    values = np.ones((9, 104), np.float32)
    values[2, -1], values[4, 3] = np.inf, np.nan
    arguments = weight(values=packed(5, 104), dtype="u8"), weight(4, 8, low=0.01, high=0.02), 32, None
    check_op(LINEAR, tensor(values=values), *arguments, target=some, tolerance=EXACT)


@pytest.mark.long(every=15)
@pytest.mark.parametrize(("sizes", "options"), [case for case in CASES if "bits" not in case[1]], ids=str)
def test_what_surrounds_them(sizes: tuple[int, ...], options: dict[str, Any], some: Target) -> None:
    """Norms before, several outputs, gates, biases and residuals behind, whole or split."""
    check_fused(some, *sizes, **options, live={"M": (17, 5)})


def words(columns: int, depth: int, group: int = 64, bits: int = 4) -> PackedWeights:
    weights, scales = (Weight.__new__(Weight) for _ in range(2))  # never read
    return PackedWeights(weights, scales, columns, depth, depth // 8, group // 8, bits)


GPU = Target(is_cpu=False, subgroup_size=32, workgroup_bytes_max=49152, invocations_max=1024)


@each(
    ("rows", "columns", "depth", "found"),
    [
        (5, 16384, 2048, (Strip(8, 4), 1)),
        (8, 2048, 2048, (Strip(8, 4), 8)),
        (9, 3072, 2048, (Strip(16, 2), 8)),
        (24, 2048, 8192, (Strip(24, 1), 8)),
        (32, 3072, 2048, (Strip(32, 1), 8)),
        (8, 64, 32, (Strip(8, 4), 1)),
        (8, 64, 1 << 20, (Strip(8, 4), 32)),
    ],
)
def test_choice(rows: int, columns: int, depth: int, found: tuple[Strip, int]) -> None:
    assert tiles.choose_strip(GPU, rows, words(columns, depth)) == found


def test_what_is_left_to_others() -> None:
    few = words(64, 64)
    assert tiles.choose_strip(GPU, 33, few) is None
    assert tiles.choose_strip(GPU, 8, words(64, 64, bits=8)) is None
    assert tiles.choose_strip(replace(GPU, subgroup_size=4), 8, few) is None
    assert tiles.choose_strip(replace(GPU, workgroup_bytes_max=16384), 8, few) is None
    assert tiles.choose_strip(replace(GPU, invocations_max=64), 32, few) is None
    assert tiles.choose_strip(GPU, 8, words(64, 64, group=16)) == (Strip(8, 2), 1)
