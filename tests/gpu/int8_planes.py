"""Arguments of convolutions of int8 planes."""

from __future__ import annotations

from typing import Any

from arguments import weight
from int8 import bias_of, padded, parameters, random_int8

CONV = "et_vk.q8ta_conv2d.default"
DEPTHWISE = "et_vk.q8ta_conv2d_dw.default"
SCALES = (0.02, -7)
OUT = (0.11, 4)


def regular(
    x: Any,
    channels: tuple[int, int],
    window: tuple[Any, ...],
    groups: int = 1,
    activation: str = "none",
    bias: bool = True,
) -> tuple[Any, ...]:
    """An operator's arguments. window: size, stride, padding, dilation; channels: in, out."""
    size, *rest = window
    inputs, outputs = channels
    weights = random_int8(outputs, inputs // groups, *size)
    rows = weights.transpose(0, 2, 3, 1).reshape(outputs, -1)
    return (
        *(x, *SCALES, weight(values=padded(rows), dtype="i8"), *parameters(rows.sum(1), outputs), *OUT),
        *(bias_of(outputs) if bias else None, size, *rest, groups, activation),
    )


def depthwise(x: Any, channels: int, window: tuple[Any, ...], activation: str = "none") -> tuple[Any, ...]:
    """Arguments of a depthwise convolution."""
    weights = random_int8(channels, 1, *window[0])
    return (
        *(x, *SCALES, weight(values=weights[:, 0].transpose(1, 2, 0), dtype="i8")),
        *(*parameters(weights.sum((1, 2, 3)), channels), *OUT),
        *(bias_of(channels) if activation == "none" else None, *window, channels, activation),
    )
