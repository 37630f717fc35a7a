"""Resampling: sizes and factors of every kind, grids in every mode, shuffles, at live batches and planes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from arguments import Argument, Symbol, tensor
from check import check_op, each, each_float, refuse_op
from plane_cases import BILINEAR, NEAREST, PRIORS, SAMPLER, SHUFFLE

from pteron.ops import Target
from pteron.reference.elementwise import nearest

LIVE = {"N": (2, 1, 3, 0), "S": (5, 11, 1, 7), "T": (13, 3, 6, 2)}


SIZES: list[tuple[list[int] | None, list[float] | None]] = [
    ([5, 13], None),
    ([7, 29], None),
    ([3, 1], None),
    ([22, 26], None),
    (None, [2.0, 2.0]),
    (None, [1.0, 3.0]),
    (None, [2.3, 1.7]),
    (None, [1.1, 0.6]),
    (None, [2.05, 1.01]),  # sizes that come out equal, or twice as large, by other factors
]


@each(("size", "factors"), SIZES)
def test_nearest(size: list[int] | None, factors: list[float] | None) -> None:
    check_op(NEAREST, tensor("N", 3, "S", "T"), size, factors, oracle=nearest, live=LIVE)


@each("align", [False, True])
@each(("size", "factors"), SIZES)
def test_bilinear(size: list[int] | None, factors: list[float] | None, align: bool) -> None:
    check_op(BILINEAR, tensor("N", 3, "S", "T"), size, align, factors, live=LIVE)


@each_float
def test_upsampling_in_float_types(dtype: str, target: Target) -> None:
    x = tensor("N", 2, "S", 7)
    check_op(NEAREST, x, None, [2.0, 1.5], oracle=nearest, live=LIVE, dtype=dtype, target=target)
    for align in (False, True):
        check_op(BILINEAR, x, None, align, [2.0, 1.5], live=LIVE, dtype=dtype, target=target)


def test_upsampling_to_live_sizes(target: Target) -> None:
    live = {"h": (5, 1, 12), "w": (3, 14, 7)}
    size = [Symbol("h"), Symbol("w")]
    check_op(NEAREST, tensor(1, 2, 6, 7), size, None, oracle=nearest, live=live, target=target)
    check_op(BILINEAR, tensor(1, 2, 6, 7), size, False, None, live=live, target=target)


@each("factor", [0.3, 0.7, 1.3, 1 / 3, 2.3, 3.3])
def test_the_nearest_of_many(factor: float) -> None:
    check_op(NEAREST, tensor(1, 1, 59, 97), None, [factor, factor], oracle=nearest)
    check_op(NEAREST, tensor(1, 1, 59, 97), [int(59 * factor), 131], None, oracle=nearest)


INFINITE = np.random.default_rng(0).choice(
    [1.0, 2.0, math.inf, math.nan], (1, 3, 7, 8), p=[0.5, 0.4, 0.06, 0.04]
)


@each("align", [False, True])
def test_infinities_and_nans(align: bool, target: Target) -> None:
    x = tensor(values=INFINITE)
    check_op(NEAREST, x, [11, 17], None, oracle=nearest, target=target)
    for size in ([11, 17], [7, 8], [3, 5]):
        check_op(BILINEAR, x, size, align, None, target=target)
    grid = tensor(1, 9, 11, 2, low=-1.25, high=1.25)
    check_op(SAMPLER, x, grid, 0, 1, align, target=target)
    check_op(SAMPLER, x, grid, 1, 1, align, target=target)


def test_more_workgroups_than_an_axis_takes(target: Target) -> None:
    narrow = replace(target, workgroups_max=13)
    check_op(NEAREST, tensor(1, 1, 16, 16), [61, 67], None, oracle=nearest, target=narrow)
    check_op(BILINEAR, tensor(1, 1, 16, 16), [61, 67], False, None, target=narrow)
    check_op(SAMPLER, tensor(1, 3, 16, 16), tensor(1, 31, 37, 2), 0, 0, False, target=narrow, tolerance=1e-4)


@each("factor", [1, 2, 3])
@each_float
def test_pixel_shuffle(factor: int, dtype: str, target: Target) -> None:
    channels = 2 * factor**2
    for lead in ((), ("N",), (2, "N", 3)):
        check_op(SHUFFLE, tensor(*lead, channels, "S", "T"), factor, live=LIVE, dtype=dtype, target=target)


def test_pixel_shuffle_of_nothing() -> None:
    check_op(SHUFFLE, tensor(2, 0, 8, 3, 4), 2)
    check_op(SHUFFLE, tensor(8, 0, 4), 2)


# Grids ------------------------------------------------------------------------------------------

in_every_mode = pytest.mark.parametrize(
    ("mode", "padding", "align"),
    [(mode, padding, align) for mode in range(3) for padding in range(3) for align in (False, True)],
)


@pytest.mark.long(every=2)
@in_every_mode
def test_grid_sampler(mode: int, padding: int, align: bool) -> None:
    grid = tensor("N", "T", 5, 2, low=-2.5, high=2.5)
    check_op(SAMPLER, tensor("N", 3, "S", 7), grid, mode, padding, align, live=LIVE, tolerance=1e-4)


@each_float
def test_grid_sampler_in_float_types(dtype: str, target: Target) -> None:
    # Places that half floats hold, so that both sides sample the same ones.
    places = np.random.default_rng(0).integers(-20, 21, (2, 5, 3, 2)) / 16
    for mode in (0, 2):
        arguments = (tensor(2, 3, 5, 9), tensor(values=places), mode, 1, True)
        check_op(SAMPLER, *arguments, dtype=dtype, target=target)


@in_every_mode
def test_places_far_away(mode: int, padding: int, align: bool) -> None:
    far = [40.25, -33.5, 0.0, 1.0, -1.0]
    places = np.array([[[[x, y] for x in far] for y in far]])
    check_op(SAMPLER, tensor(1, 2, 3, 5), tensor(values=places), mode, padding, align, tolerance=1e-4)
    check_op(SAMPLER, tensor(1, 2, 1, 5), tensor(values=places), mode, padding, align, tolerance=1e-4)


@each("padding", [0, 1, 2])
def test_places_that_are_no_numbers(padding: int) -> None:
    """PyTorch's answer depends on the processor: here they are NaN, or the nearest element to the first."""
    places = torch.tensor([[[[math.nan, 0.0], [0.5, -0.25], [0.0, math.nan]]]])

    def with_nans(x: Any, grid: Any, mode: int, *rest: Any) -> Any:
        known = torch.ops.aten.grid_sampler_2d(x, grid.nan_to_num(-1.0), mode, *rest)
        return torch.where(grid.isnan().any(-1), torch.nan, known) if mode == 0 else known

    for mode in (0, 1):
        arguments = tensor(1, 2, 3, 5), tensor(values=places.numpy()), mode, padding, True
        check_op(SAMPLER, *arguments, oracle=with_nans)


@each("place", [(math.nan, 0.1, 0.3), (0.1, math.nan, 0.3), (0.1, 0.3, math.nan), (0.1, math.inf, 0.3)])
def test_places_in_volumes_that_are_no_numbers(place: tuple[float, ...]) -> None:
    """The same of each coordinate alone."""

    def known(x: Any, grid: Any, mode: int, *rest: Any) -> Any:
        first = grid.nan_to_num(-1.0, posinf=9.0)
        sampled = torch.ops.aten.grid_sampler_3d(x, first, mode, *rest)
        return torch.where(grid.isfinite().all(-1), sampled, torch.nan) if mode == 0 else sampled

    for mode in (0, 1):
        arguments = tensor(1, 1, 3, 4, 5), tensor(values=[[[[place, (0.1, 0.2, 0.3)]]]]), mode, 0, True
        check_op("aten.grid_sampler_3d.default", *arguments, oracle=known)


def test_the_element_halfway_is_the_even_one() -> None:
    places = [[[[(2 * x + 1) / 8 - 1, (2 * y + 1) / 8 - 1] for x in range(8)] for y in range(8)]]
    check_op(SAMPLER, tensor(1, 1, 9, 9), tensor(values=places), 1, 0, True)


def test_grid_sampler_without_channels_or_places() -> None:
    check_op(SAMPLER, tensor(1, 0, 3, 4), tensor(1, 2, 2, 2), 0, 0, True)
    check_op(SAMPLER, tensor(1, 2, 3, 4), tensor(1, 0, 2, 2), 0, 0, True)


@each(("stride", "offset"), [(8, 0.5), (16, 0.0), (3, -1.25)])
@each_float
def test_grid_priors(stride: int, offset: float, dtype: str, target: Target) -> None:
    live = {"S": (5, 11, 1, 7), "T": (13, 3, 0, 2)}
    for lead in ((), (1, 3)):
        x = tensor(*lead, "S", "T")
        check_op(PRIORS, x, stride, offset, live=live, dtype=dtype, target=target)


# Refusals ---------------------------------------------------------------------------------------


@each("name", [NEAREST, BILINEAR])
def test_refused_sizes(name: str) -> None:
    def refuse(x: Argument, size: Argument, factors: Argument, match: str) -> None:
        align = () if name == NEAREST else (False,)
        refuse_op(name, x, size, *align, factors, match=match, out=((1, 1, 64, 64),))

    x = tensor(1, 1, 4, 4)
    refuse(x, None, None, r"either output_size or scale_factors is given; got .*\[1, 1, 4, 4\]")
    refuse(x, None, [float("nan"), 2.0], "must be finite")
    refuse(x, None, [2.0, 1.7e308], "must be finite")
    refuse(x, [2, 2], [2.0, 2.0], "either output_size or scale_factors")
    refuse(x, [2], None, r"two dims, \[2\] must too")
    refuse(x, [0, 2], None, r"to \[0, 2\] takes planes and channels that are not empty")
    refuse(x, None, [0.1, 2.0], r"to \[0, 8\]")
    refuse(tensor(1, 4, 4), [2, 2], None, "four dims of floats; got")
    refuse(tensor(1, 0, 4, 4), [2, 2], None, "not empty")


def test_refusals() -> None:
    refuse_op(SHUFFLE, tensor(7, 4, 4), 2, match="the channels must be a multiple of 4; got")
    refuse_op(SHUFFLE, tensor(8, 4), 2, match="three dims or more")
    refuse_op(SHUFFLE, tensor(8, 4, 4), 0, match="upscale_factor 0 must be positive")
    refuse_op(PRIORS, tensor(4), 2, 0.5, match="two dims or more")
    x, grid = tensor(1, 2, 3, 4), tensor(1, 5, 6, 2)

    def refuse(x: Argument, grid: Argument, mode: int, padding: int, match: str) -> None:
        refuse_op(SAMPLER, x, grid, mode, padding, True, match=match, out=((1, 2, 5, 6),))

    refuse(tensor(2, 3, 4), grid, 0, 0, "must have four or five dims")
    refuse(x, tensor(1, 5, 6, 3), 0, 0, "last dim must be 2")
    refuse(x, tensor(2, 5, 6, 2), 0, 0, "must have one batch")
    refuse(tensor(1, 2, 0, 4), grid, 0, 0, "must not be empty")
    refuse(x, grid, 3, 0, r"2 \(bicubic\), not 3")
    refuse(x, grid, 0, -1, r"2 \(reflection\), not -1")


@pytest.mark.long(every=2)
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("interpolation", [0, 1])
def test_grid_sampler_of_volumes(interpolation: int, padding: int) -> None:
    for align_corners in (False, True):
        # Not at the middle between two elements, where the nearest is a matter of rounding.
        grid = tensor("T", 4, 3, 2, 3, low=-1.7, high=1.7)
        arguments = tensor("T", 2, 5, 7, 6), grid, interpolation, padding, align_corners
        check_op("aten.grid_sampler_3d.default", *arguments)
    edges = tensor(values=[[[[[0.1, 0.2, 0.3], [0.1, 0.3, 9.0], [-9.0, 0.3, -7.3]]]]])
    check_op("aten.grid_sampler_3d.default", tensor(1, 2, 3, 4, 5), edges, interpolation, padding, False)


def test_refused_volumes() -> None:
    x, out = tensor(2, 3, 5, 5, 5), ((2, 3, 4, 4, 4),)
    refuse_op(
        "aten.grid_sampler_3d.default", x, tensor(2, 4, 4, 4, 2), 0, 0, False, match="must be 3", out=out
    )
    refuse_op(
        "aten.grid_sampler_3d.default", x, tensor(2, 4, 4, 4, 3), 2, 0, False, match="trilinear", out=out
    )
