"""Convolutions of every kind, by the kernels for software adapters and by those for GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from arguments import tensor
from check import check_op, each, each_float, refuse_op
from measure import Measuring
from plane_cases import CLAMPED, CONVOLUTION, numbers, small

from pteron.families.convolution.kernels import QUOTIENT_MAX
from pteron.gpu import Device
from pteron.ops import Target

pytestmark = pytest.mark.kernels

PLANES = {"S": (11, 5, 7, 4), "T": (13, 8, 5, 6), "N": (3, 1, 2, 1)}


@each("window", [(1, 1), (3, 3), (1, 5), (4, 2)], every=3)
@each(
    "options",
    [
        {},
        {"padding": (1, 2)},
        {"stride": (2, 3), "padding": 1},
        {"dilation": (2, 1), "padding": (3, 2), "stride": 2},
    ],
)
def test_windows(window: tuple[int, int], options: dict[str, Any], target: Target) -> None:
    arguments = tensor("N", 5, "S", "T"), small(13, 5, *window), small(13)
    check_op(CONVOLUTION, *arguments, *numbers(**options), live=PLANES, target=target)


@each(("channels", "filters"), [(1, 1), (3, 64), (4, 67), (17, 130), (64, 12)], every=3)
@each("bias", [True, False])
def test_channels(channels: int, filters: int, bias: bool, target: Target) -> None:
    added = small(filters) if bias else None
    arguments = tensor("N", channels, "S", "T"), small(filters, channels, 3, 3), added
    check_op(CONVOLUTION, *arguments, *numbers(padding=1), live=PLANES, target=target, tolerance=5e-5)


@each(("groups", "channels", "filters"), [(2, 3, 5), (3, 4, 24), (5, 1, 1), (3, 1, 4), (2, 17, 1)], every=2)
@each("stride", [1, 2])
def test_groups(groups: int, channels: int, filters: int, stride: int, target: Target) -> None:
    arguments = tensor("N", groups * channels, "S", "T"), small(groups * filters, channels, 3, 3)
    rest = numbers(groups=groups, stride=stride, padding=1)
    check_op(CONVOLUTION, *arguments, small(groups * filters), *rest, live=PLANES, target=target)


@each("channels", [3, 16, 70])
@each("filters", [3, 67])
def test_pointwise(channels: int, filters: int, target: Target) -> None:
    arguments = tensor("N", channels, "S", "T"), small(filters, channels, 1, 1), small(filters)
    check_op(CONVOLUTION, *arguments, *numbers(), live=PLANES, target=target, tolerance=5e-5)


@each(("top", "left", "bottom", "right"), [(0, 0, 1, 1), (3, 1, 0, 2), (0, 2, 3, 0)])
@each(("channels", "filters", "groups"), [(5, 13, 1), (3, 64, 1), (8, 8, 8), (6, 9, 3)], every=3)
@each("stride", [1, 2])
def test_padding_that_differs_at_start_and_end(
    top: int,
    left: int,
    bottom: int,
    right: int,
    channels: int,
    filters: int,
    groups: int,
    stride: int,
    target: Target,
) -> None:
    def oracle(x: Any, weights: Any, bias: Any, *rest: Any) -> Any:
        padded = torch.nn.functional.pad(x, (left, right, top, bottom))
        return torch.nn.functional.conv2d(padded, weights, bias, stride, groups=groups)

    arguments = tensor("N", channels, "S", "T"), small(filters, channels // groups, 3, 3), small(filters)
    rest = numbers(groups=groups, stride=stride, padding=(top, left))
    finished = (bottom - top, right - left), None, None, None, None, "none"
    check_op("pteron.convolution", *arguments, *rest, *finished, oracle=oracle, live=PLANES, target=target)


@each(
    ("channels", "filters", "groups", "size"),
    [(5, 13, 1, 3), (64, 67, 1, 1), (18, 27, 3, 3), (7, 7, 7, 3)],
    every=3,
)
@each("padding", [0, 1])
def test_factors_of_planes(
    channels: int, filters: int, groups: int, size: int, padding: int, target: Target
) -> None:
    """A number for each plane, or one that is broadcast along planes or images."""

    def oracle(x: Any, weights: Any, bias: Any, *rest: Any) -> Any:
        found = torch.nn.functional.conv2d(x * rest[7], weights, bias, 2, padding, groups=groups)
        return torch.nn.functional.hardsigmoid(found)

    weights = small(filters, channels // groups, size, size), small(filters)
    rest = *numbers(groups=groups, stride=2, padding=padding), ()
    for planes in (("N", channels, 1, 1), (1, channels, 1, 1), ("N", 1, 1, 1), ("N", channels, "S", 1)):
        arguments = tensor("N", channels, "S", "T"), *weights, *rest, tensor(*planes)
        options: dict[str, Any] = {"oracle": oracle, "live": PLANES, "target": target}
        check_op("pteron.convolution", *arguments, None, None, None, "hardsigmoid", **options)


def test_a_window_on_the_padding_alone(target: Target) -> None:
    """Its only place is before an image of one pixel: the output is the bias."""
    arguments = tensor(2, 5, 1, 1), small(7, 5, 1, 1), small(7), *numbers(padding=1, stride=3)
    check_op(CONVOLUTION, *arguments, target=target)


def test_one_dim(target: Target) -> None:
    for channels, filters, groups, options in (
        (5, 7, 1, {"stride": 2, "padding": 3}),
        (6, 6, 6, {"dilation": 3}),
        (6, 9, 3, {"padding": 1}),
    ):
        arguments = tensor("N", channels, "T"), small(filters, channels // groups, 3), small(filters)
        rest = numbers(1, groups=groups, **options)
        live = {"T": (29, 8, 17, 11), "N": (3, 1, 2, 1)}
        check_op(CONVOLUTION, *arguments, *rest, live=live, target=target)


@each(
    "options",
    [
        {"extra": 0},
        {"extra": 0, "stride": 2},
        {"extra": (1, 0), "stride": (3, 2), "padding": (1, 2)},
        {"extra": 1, "stride": 1, "dilation": 2, "padding": 1},
    ],
    every=3,
)
@each(("groups", "channels", "filters"), [(1, 5, 13), (3, 2, 4), (4, 1, 1), (1, 20, 67)])
def test_transposed(
    options: dict[str, Any], groups: int, channels: int, filters: int, target: Target
) -> None:
    arguments = tensor("N", groups * channels, "S", "T"), small(groups * channels, filters, 3, 4)
    rest = numbers(groups=groups, **options)
    live = {"S": (7, 2, 5, 3), "T": (6, 5, 3, 4), "N": (2, 1, 2, 1)}
    check_op(
        CONVOLUTION, *arguments, small(groups * filters), *rest, live=live, target=target, tolerance=5e-5
    )


def test_transposed_in_one_dim(target: Target) -> None:
    arguments = tensor("N", 4, "T"), small(4, 3, 5), small(3)
    rest = numbers(1, stride=3, padding=1, extra=2)
    check_op(CONVOLUTION, *arguments, *rest, live={"T": (9, 1, 4, 6), "N": (2, 1, 2, 1)}, target=target)


@each(("low", "high"), [(0.0, 1.797e308), (0.0, 6.0), (-1.5, None), (None, 2), (None, None)], every=3)
@each("channels", [1, 6])
def test_clamped(low: float | None, high: float | None, channels: int, target: Target) -> None:
    groups = 6 // channels
    arguments = tensor("N", 6, "S", "T"), small(12, channels, 3, 3), small(12)
    rest = [*numbers(padding=1, groups=groups), low, high]
    check_op(CLAMPED, *arguments, *rest, live=PLANES, target=target)


@each_float
@each("groups", [1, 2, 12], every=3)
def test_float_types(dtype: str, groups: int, target: Target) -> None:
    x = tensor("N", 12, "S", "T", low=-1, high=1)
    arguments = x, small(24, 12 // groups, 3, 3), small(24)
    check_op(
        CONVOLUTION,
        *arguments,
        *numbers(groups=groups),
        live=PLANES,
        dtype=dtype,
        target=target,
        tolerance=None if dtype == "f32" else 5e-3,
    )


def test_a_weight_from_the_call(target: Target) -> None:
    for options in ({}, {"groups": 2}, {"extra": 1, "stride": 2}, {"extra": 0, "groups": 2}):
        groups = options.get("groups", 1)
        shape = (6, 10, 3, 3) if "extra" in options else (20, 6 // groups, 3, 3)
        filters = 10 * groups if "extra" in options else 20
        arguments = tensor("N", 6, "S", "T"), tensor(*shape), tensor(filters)
        check_op(CONVOLUTION, *arguments, *numbers(**options), live=PLANES, target=target, tolerance=5e-5)


def test_deep_sums(target: Target) -> None:
    arguments = tensor("N", 1031, 3, 3, low=-1, high=1), small(9, 1031, 3, 3), small(9)
    check_op(CONVOLUTION, *arguments, *numbers(padding=1), live={"N": (2, 1)}, target=target, tolerance=1e-4)


def test_few_pixels(target: Target) -> None:
    for channels, window in ((70, 1), (5, 3)):
        arguments = tensor("N", channels, window, window), small(67, channels, window, window), small(67)
        check_op(CONVOLUTION, *arguments, *numbers(), live={"N": (9, 1, 3, 5)}, target=target, tolerance=5e-5)


def test_nothing_to_do(target: Target) -> None:
    check_op(CONVOLUTION, tensor(0, 3, 5, 5), small(4, 3, 3, 3), small(4), *numbers(), target=target)


def test_a_live_batch_of_nothing(target: Target) -> None:
    for weights in (small(20, 6, 3, 3), tensor(20, 6, 3, 3)):
        arguments = tensor("N", 6, 5, 5), weights, None
        check_op(CONVOLUTION, *arguments, *numbers(), live={"N": (2, 0, 1)}, target=target, tolerance=5e-5)


@each("channels", [1, 6])
def test_nothing_but_padding(channels: int, target: Target) -> None:
    """Of no rows at all, which PyTorch refuses, every sum is zero."""

    def padded(x: Any, weights: Any, bias: Any, stride: Any, padding: list[int], *_: Any) -> Any:
        height, width = padding
        return torch.nn.functional.conv2d(
            torch.nn.functional.pad(x, (width, width, height, height)), weights, bias, stride
        )

    for weights in (small(5, channels, 3, 3), tensor(5, channels, 3, 3)):
        arguments = tensor(2, channels, "S", 4), weights, small(5), *numbers(padding=(2, 1))
        check_op(CONVOLUTION, *arguments, oracle=padded, live={"S": (3, 0, 1)}, target=target, tolerance=5e-5)


@each("groups", [1, 3, 12])
def test_more_workgroups_than_an_axis_takes(groups: int, target: Target) -> None:
    narrow = replace(target, workgroups_max=37)
    arguments = tensor(1, 12, 67, 67), small(24, 12 // groups, 3, 3), None
    check_op(CONVOLUTION, *arguments, *numbers(groups=groups), target=narrow, tolerance=5e-5)


@each(("channels", "taps"), [(2, 6000), (1, 9000), (7, 2500)])
def test_windows_of_many_taps(channels: int, taps: int, target: Target) -> None:
    arguments = tensor(1, channels, taps + 2, low=-1, high=1), small(3, channels, taps), None
    check_op(CONVOLUTION, *arguments, *numbers(1), target=target, tolerance=1e-3)


@pytest.mark.long
def test_quotients_by_multiplication_are_exact() -> None:
    """The division of convolution_tiled in f32, at and around multiples of the divisor."""
    for divisor in (*range(1, 70), 127, 255, 512, 1000, 4095, 65_537, 999_983):
        numbers_near = np.arange(0, QUOTIENT_MAX + 1, max(1, divisor))[:, None] + np.array([-1, 0, 1])
        near = np.unique(numbers_near.clip(0, QUOTIENT_MAX))
        reciprocal = np.float32(1 / divisor)
        quotients = ((near.astype(np.float32) + np.float32(0.5)) * reciprocal).astype(np.int64)
        np.testing.assert_array_equal(quotients, near // divisor)


def test_infinities_and_nans_stay_in_their_window(target: Target) -> None:
    values = torch.ones(1, 3, 9, 9)
    values[0, 0, 4, 4], values[0, 2, 0, 0] = torch.inf, torch.nan
    for groups in (1, 3):
        arguments = tensor(values=values.numpy()), small(12, 3 // groups, 3, 3), small(12)
        check_op(CONVOLUTION, *arguments, *numbers(padding=1, groups=groups), target=target)


@each(
    ("x", "weights", "bias", "options", "match"),
    [
        ((1, 3, 5, 5), (4, 2, 3, 3), None, {}, "the weight takes 2 channels"),
        ((1, 3, 5, 5), (4, 3, 3), None, {}, "the same rank"),
        ((3, 5), (4, 3), None, {}, "takes an input"),
        ((1, 4, 5, 5), (5, 2, 3, 3), None, {"groups": 2}, "weight must have 2 groups"),
        ((1, 3, 2, 5), (4, 3, 3, 3), None, {}, "does not fit a plane"),
        ((1, 3, 5, 5), (4, 3, 3, 3), (3,), {}, "bias must have one value for each of the 4"),
        ((1, 3, 5, 5), (4, 3, 3, 3), None, {"stride": 0}, "must be positive"),
        ((1, 3, 5, 5), (3, 4, 3, 3), None, {"extra": 2, "stride": 2}, "output_padding"),
        ((1, 3, 5, 5), (3, 4, 3, 3), None, {"extra": (1, 1, 1)}, "must be one number or two"),
    ],
)
def test_what_is_refused(
    x: tuple[int, ...],
    weights: tuple[int, ...],
    bias: tuple[int, ...] | None,
    options: dict[str, Any],
    match: str,
) -> None:
    added = small(*bias) if bias else None
    out = [(1, 4, 64, 64)]
    refuse_op(CONVOLUTION, tensor(*x), small(*weights), added, *numbers(**options), match=match, out=out)


# Software adapters: sources and weights as uniform arrays ------------------------------------------


@pytest.fixture
def software(device: Device) -> Target:
    if not device.target.broadcasts:
        pytest.skip("tensors can be uniform arrays on software adapters with subgroups alone")
    return device.target


@each(
    ("channels", "filters", "plane", "floats"),
    [
        (8, 16, (8, 8), 512),  # in one launch
        (32, 21, (8, 8), 512),  # channels in parts
        (24, 40, (4, 6), 640),  # filters in blocks, arrays that begin earlier
        (3, 5, (24, 32), 512),  # rows in bands
        (5, 17, (40, 16), 512),  # both bands and parts
        (4, 40, (9, 12), 4096),  # blocks of filters in one launch, pixels that fill half a workgroup
    ],
    every=3,
)
@each("options", [{}, {"padding": (1, 2)}, {"stride": (2, 1), "padding": (2, 1), "dilation": (1, 2)}])
def test_uniform_arrays(
    channels: int,
    filters: int,
    plane: tuple[int, int],
    floats: int,
    options: dict[str, Any],
    software: Target,
    measuring: Measuring,
) -> None:
    tight = replace(software, uniform_bytes_max=4 * floats)
    arguments = tensor("N", channels, *plane), small(filters, channels, 3, 3), small(filters)
    live = {"N": (2, 1)}
    check_op(CONVOLUTION, *arguments, *numbers(**options), live=live, target=tight, tolerance=5e-5)
    assert "convolution_uniform" in measuring.kernels


@each(
    ("channels", "filters", "plane"),
    [(8, 1, (8, 8)), (24, 1, (4, 6)), (8, 2, (8, 8)), (8, 1, (7, 9))],
    every=2,
)
@each(
    "options",
    [{}, {"stride": (2, 1), "padding": (2, 1), "dilation": (1, 2)}, {"stride": (1, 3), "padding": (1, 4)}],
)
def test_depthwise_uniform_arrays(
    channels: int,
    filters: int,
    plane: tuple[int, int],
    options: dict[str, Any],
    software: Target,
    measuring: Measuring,
) -> None:
    tight = replace(software, uniform_bytes_max=1024)
    arguments = tensor("N", channels, *plane), small(channels * filters, 1, 3, 3), small(channels * filters)
    rest = numbers(groups=channels, **options)
    check_op(CONVOLUTION, *arguments, *rest, live={"N": (2, 1)}, target=tight)
    assert "convolution_depthwise_uniform" in measuring.kernels


def test_uniform_arrays_of_f16(software: Target, measuring: Measuring) -> None:
    """Their images become f32 first."""
    for filters, groups in ((21, 1), (16, 16)):
        arguments = tensor("N", 16, 7, 8), small(filters, 16 // groups, 3, 3), small(filters)
        rest = numbers(groups=groups, padding=1)
        check_op(CONVOLUTION, *arguments, *rest, live={"N": (2, 1)}, dtype="f16", target=software)
    assert {"convolution_uniform", "convolution_depthwise_uniform", "unary"} <= measuring.kernels


@each("addend", [("N", 13, "S"), (13, 1), ("N", 1, "S")], every=2)
def test_a_sum_with_a_signal(addend: tuple[int | str, ...], target: Target) -> None:
    def oracle(x: Any, weights: Any, bias: Any, *rest: Any) -> Any:
        return torch.nn.functional.conv1d(x, weights, bias, padding=1) + rest[-2]

    arguments = tensor("N", 5, "S"), small(13, 5, 3), small(13), *numbers(1, padding=1), (), None, None, None
    live = {"N": (3, 1, 2), "S": (11, 5, 7)}
    check_op(
        "pteron.convolution", *arguments, tensor(*addend), "none", oracle=oracle, live=live, target=target
    )


@each("addend", [None, (1,), ("N", 61, 1, 1)], every=3)
@each("bounds", [(None, None), (0.0, None), (0.0, 6.0)])
@each("activation", ["none", "hardsigmoid"])
def test_images_of_one_pixel(
    addend: tuple[int | str, ...] | None,
    bounds: tuple[float | None, float | None],
    activation: str,
    software: Target,
    measuring: Measuring,
) -> None:
    """Are rows of a matrix product, unless results have an upper bound, or an activation and more."""

    def oracle(x: Any, weights: Any, bias: Any, *rest: Any) -> Any:
        found = torch.nn.functional.conv2d(x, weights, bias)
        found = found if addend is None else found + rest[-2]
        found = found if bounds == (None, None) else found.clamp(*bounds)
        return torch.nn.functional.hardsigmoid(found) if activation == "hardsigmoid" else found

    arguments = tensor("N", 67, 1, 1), small(61, 67, 1, 1), small(61), *numbers(), (), None, *bounds
    following = (None if addend is None else tensor(*addend), activation)
    options: dict[str, Any] = {"oracle": oracle, "live": {"N": (9, 1, 3)}, "target": software}
    measuring.kernels.clear()
    check_op("pteron.convolution", *arguments, *following, **options)
    is_plain = activation == "none" or (addend is None and bounds[0] is None)
    assert ("matmul_uniform" in measuring.kernels) == (bounds[1] is None and is_plain)
