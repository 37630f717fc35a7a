"""Convolutions of int8 planes, to the last bit: exact sums, then PyTorch's float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from arguments import tensor, weight
from check import check_op, each, refuse_op
from int8 import FULL, bias_of, padded, parameters, random_int8
from int8_planes import CONV, DEPTHWISE, OUT, SCALES, depthwise, regular

from pteron.ops import Target

pytestmark = pytest.mark.kernels

POINTWISE = "et_vk.q8ta_conv2d_pw.default"
TRANSPOSED = "et_vk.q8ta_conv2d_transposed.default"
LIVE = {"S": (3, 1, 2), "T": (9, 13, 7, 11)}


def check_regular(name: str, x: Any, *sizes: Any, target: Target, live: Any = LIVE, **options: Any) -> None:
    check_op(name, *regular(x, *sizes, **options), live=live, out="i8", target=target)


INSIDE = ([3, 3], [1, 1], [0, 0], [1, 1])
WINDOWS = [
    ([3, 3], [1, 1], [1, 1], [1, 1]),
    ([3, 3], [2, 2], [1, 1], [1, 1]),
    ([3, 5], [1, 2], [1, 2], [1, 1]),
    ([3, 3], [1, 1], [2, 2], [2, 2]),
    ([1, 1], [2, 2], [0, 0], [1, 1]),
    ([5, 2], [3, 1], [0, 3], [1, 2]),
]


@each("window", WINDOWS, every=3)
@each("channels", [(8, 8), (3, 6), (5, 67)])
def test_conv2d(window: Any, channels: tuple[int, int], target: Target) -> None:
    check_regular(CONV, tensor("S", channels[0], "T", 11, **FULL), channels, window, target=target)


@pytest.mark.parametrize(("channels", "groups"), [((8, 8), 2), ((6, 9), 3), ((4, 8), 4), ((10, 134), 2)])
def test_groups(channels: tuple[int, int], groups: int, target: Target) -> None:
    x = tensor(2, channels[0], 7, "T", **FULL)
    check_regular(CONV, x, channels, WINDOWS[0], groups, target=target)


@each("activation", ["none", "relu"])
@each("channels", [(4, 8), (33, 5), (7, 131)], every=2)
def test_pointwise(channels: tuple[int, int], activation: str, target: Target) -> None:
    window = ([1, 1], [1, 1], [0, 0], [1, 1])
    x = tensor("S", channels[0], 5, "T", **FULL)
    check_regular(POINTWISE, x, channels, window, target=target, activation=activation, bias=False)


def test_one_image_and_one_place(target: Target) -> None:
    check_regular(CONV, tensor(8, "T", 11, **FULL), (8, 5), WINDOWS[1], target=target)
    check_regular(CONV, tensor("S", 70, 3, 3, **FULL), (70, 5), INSIDE, target=target)


def test_no_images(target: Target) -> None:
    live = {"S": (2, 0, 1)}
    check_regular(CONV, tensor("S", 4, 5, 5, **FULL), (4, 5), WINDOWS[0], target=target, live=live)


def test_tall_tiles(target: Target) -> None:
    """More tiles than keep a device busy: each takes 128 channels."""
    check_regular(CONV, tensor(1, 3, 133, 131, **FULL), (3, 130), WINDOWS[0], target=target)


@each("zero", [-128, 127])
def test_extremes(zero: int, target: Target) -> None:
    for value in (-128, 127):
        weights = np.full((5, 4, 3, 3), value)
        rows = weights.transpose(0, 2, 3, 1).reshape(5, -1)
        check_op(
            CONV,
            *(tensor(values=np.full((1, 4, 5, 5), -1 - zero), dtype="i8"), 0.02, zero),
            *(weight(values=rows, dtype="i8"), *parameters(rows.sum(1), 5), 60.0, 3),
            *(None, [3, 3], [1, 1], [1, 1], [1, 1], 1, "none"),
            out="i8",
            target=target,
        )


@pytest.mark.long(every=6)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("activation", ["none", "relu"])
def test_depthwise(window: Any, activation: str, target: Target) -> None:
    arguments = depthwise(tensor("S", 7, "T", 11, **FULL), 7, window, activation)
    check_op(DEPTHWISE, *arguments, live=LIVE, out="i8", target=target)


TRANSPOSED_WINDOWS = [
    ([2, 2], [2, 2], [0, 0], [0, 0], [1, 1]),
    ([3, 3], [2, 2], [1, 1], [1, 1], [1, 1]),
    ([3, 2], [2, 3], [1, 0], [0, 2], [1, 1]),
    ([3, 3], [1, 2], [1, 1], [0, 1], [2, 2]),
]


@each("window", TRANSPOSED_WINDOWS, every=3)
@each(("channels", "groups"), [((8, 8), 1), ((3, 6), 1), ((6, 16), 2), ((4, 4), 4), ((5, 67), 1)])
def test_transposed(window: Any, channels: tuple[int, int], groups: int, target: Target) -> None:
    inputs, outputs = channels
    size, *rest = window
    weights = random_int8(inputs, outputs // groups, *size)
    split = weights.reshape(groups, inputs // groups, outputs // groups, *size)
    rows = split.transpose(0, 2, 3, 4, 1).reshape(outputs, -1)
    sums, _ = parameters(rows.sum(1), outputs)
    _, scales = parameters(rows.sum(1), outputs // groups)
    check_op(
        TRANSPOSED,
        *(tensor("S", inputs, "T", 5, **FULL), *SCALES, weight(values=padded(rows), dtype="i8")),
        *(sums, scales, *OUT, bias_of(outputs)),
        *(size, *rest, groups, "none"),
        live=LIVE,
        out="i8",
        target=target,
    )


def test_what_float_arithmetic_gives(target: Target) -> None:
    """The definition: dequantised planes, convolved in float64, quantised."""
    weights = random_int8(9, 8, 3, 3)

    def oracle(x: Any, s: float, z: int, _: Any, sums: Any, ws: Any, o: float, w: int, *rest: Any) -> Any:
        kernel = torch.from_numpy(weights) * ws[:9].reshape(-1, 1, 1, 1)
        out = torch.nn.functional.conv2d((x.double() - z) * s, kernel, rest[0][:9], padding=1)
        return torch.clamp(torch.round(out / o) + w, -128, 127).to(torch.int64)

    rows = weights.transpose(0, 2, 3, 1).reshape(9, -1)
    check_op(
        CONV,
        *(tensor("S", 8, 7, 7, **FULL), *SCALES, weight(values=padded(rows), dtype="i8")),
        *(*parameters(rows.sum(1), 9), *OUT, bias_of(9), *WINDOWS[0], 1, "none"),
        oracle=oracle,
        live={"S": (2, 1)},
        out="i8",
        target=target,
    )


def test_refusals() -> None:
    rows = random_int8(5, 36)
    sums, scales = parameters(rows.sum(1), 5)
    weights, x = weight(values=rows, dtype="i8"), tensor(1, 4, 6, 6, **FULL)
    plain = ([3, 3], [1, 1], [1, 1], [1, 1])

    def refuse(x: Any, weights: Any, window: Any, groups: int, match: str, name: str = CONV) -> None:
        arguments = (x, *SCALES, weights, sums, scales, *OUT, None, *window, groups, "none")
        refuse_op(name, *arguments, match=match, dtype="i8", out=[(1, 5, 6, 6)])

    refuse(tensor(4, 6, **FULL), weights, plain, 1, "or one image")
    refuse(tensor(1, 4, 0, 6, **FULL), weights, plain, 1, "with places")
    refuse(x, weights, plain, 2, "2 groups must divide")
    refuse(x, weights, plain, 0, "0 groups must divide")
    refuse(x, weight(5, 35, **FULL), plain, 1, "weights must be i8 \\[5, at least 36\\]")
    refuse(x, weight(180, **FULL), plain, 1, "weights must be \\[channel, tap")
    refuse(x, weights, ([3, 3], [0, 1], [1, 1], [1, 1]), 1, "must be positive")
    refuse(x, weights, ([9, 9], [1, 1], [0, 0], [1, 1]), 1, "does not fit a plane")
    refuse(tensor(1, 4, 6, 6, dtype="f32"), weights, plain, 1, "all tensors must be i8")
    refuse(x, weight(3, 3, 5, **FULL), plain, 5, "5 groups must divide", DEPTHWISE)
    refuse(x, weight(2, 3, 4, **FULL), plain, 4, "depthwise weights must be \\[3, 3, channels\\]", DEPTHWISE)
    refuse(x, weight(4, 9, **FULL), plain, 4, "4 groups must divide|depthwise weights", DEPTHWISE)
    much = ([3, 3], [1, 1], [1, 1], [2, 2], [1, 1])
    refuse(x, weights, much, 1, "output_padding \\[2, 2\\] must be below", TRANSPOSED)
    nothing = ([1, 1], [1, 1], [9, 9], [0, 0], [1, 1])
    refuse(x, weights, nothing, 1, "leaves nothing of a plane", TRANSPOSED)
