"""Convolutions of int8 planes."""

from __future__ import annotations

from typing import Any

import torch

from pteron.reference.int8 import rounded, scaled
from pteron.reference.table import reference


@reference("et_vk.q8ta_conv2d.default", "et_vk.q8ta_conv2d_pw.default")
def convolution(x: Any, x_scale: float, x_zero: int, weights: Any, *rest: Any) -> torch.Tensor:
    """A channel's weights are a row: height, width, then the channels of its group; rows may be padded."""
    *_, size, _, _, _, groups, _ = rest
    channels = x.shape[-3] // groups
    kernel = weights[:, : size[0] * size[1] * channels].reshape(-1, *size, channels).permute(0, 3, 1, 2)
    return _convolved(x, x_scale, x_zero, kernel, *rest)


@reference("et_vk.q8ta_conv2d_dw.default")
def depthwise(x: Any, x_scale: float, x_zero: int, weights: Any, *rest: Any) -> torch.Tensor:
    """Weights are [height, width, channels]."""
    kernel = weights.permute(2, 0, 1)[: x.shape[-3], None]
    return _convolved(x, x_scale, x_zero, kernel, *rest)


def _convolved(x: Any, x_scale: float, x_zero: int, kernel: torch.Tensor, *rest: Any) -> torch.Tensor:
    _, scales, scale, zero, bias, _, stride, padding, dilation, groups, activation = rest
    sums = torch.nn.functional.conv2d(
        x.double() - x_zero, kernel.double(), None, list(stride), list(padding), list(dilation), groups
    )
    return rounded(scaled(sums, x_scale, scales, bias, -3), scale, zero, activation)


@reference("et_vk.q8ta_conv2d_transposed.default")
def transposed(x: Any, x_scale: float, x_zero: int, weights: Any, *rest: Any) -> torch.Tensor:
    """Rows as of `convolution`. There are scales for the channels of one group, which all groups share."""
    _, scales, scale, zero, bias, size, stride, padding, extra, dilation, groups, activation = rest
    channels = x.shape[-3] // groups
    rows = weights[:, : size[0] * size[1] * channels].reshape(groups, -1, *size, channels)
    outputs = rows.shape[1]
    kernel = rows.permute(0, 4, 1, 2, 3).reshape(groups * channels, outputs, *size)
    sums = torch.nn.functional.conv_transpose2d(
        x.double() - x_zero,
        kernel.double(),
        None,
        list(stride),
        list(padding),
        list(extra),
        groups,
        list(dilation),
    )
    numbers = scaled(sums, x_scale, scales[:outputs].repeat(groups), bias, -3)
    return rounded(numbers, scale, zero, activation)
