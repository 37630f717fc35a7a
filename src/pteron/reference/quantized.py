"""Quantisation in float32, in PyTorch's order of operations: floats to integers and back, and their scales.

Operators of int8 tensors (`q8ta`, `q8csw`) sum integers exactly, then scale in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pteron.reference.table import REFERENCES, reference

_LOW, _HIGH = -128, 127


def _along(parameter: Any, x: torch.Tensor, axis: int) -> torch.Tensor:
    """One parameter per position of an axis, as one per element."""
    shape = [1] * x.ndim
    shape[axis] = -1
    return torch.as_tensor(parameter).reshape(shape)


def _range(low: Any, high: Any) -> tuple[Any, Any]:
    """The range of integers; by default that of int8."""
    return _LOW if low is None else low, _HIGH if high is None else high


def _of_blocks(parameter: torch.Tensor | None, x: torch.Tensor, block: Sequence[int]) -> Any:
    """One parameter per block, as one per element; without parameters, 0."""
    if parameter is None:
        return 0
    parameter = parameter.reshape([size // along for size, along in zip(x.shape, block, strict=True)])
    for dim, along in enumerate(block):
        parameter = parameter.repeat_interleave(along, dim)
    return parameter


def quantize(x: torch.Tensor, scale: Any, zero: Any, low: float, high: float) -> torch.Tensor:
    inverse = 1.0 / scale.float() if isinstance(scale, torch.Tensor) else 1.0 / scale
    steps = torch.round(x.float() * inverse)
    return torch.clamp(steps + zero, low, high).long()


def dequantize(x: torch.Tensor, scale: Any, zero: Any) -> torch.Tensor:
    numbers = (x - zero).float()
    return (numbers * (scale.float() if isinstance(scale, torch.Tensor) else scale)).double()


def _scalar(value: Any) -> Any:
    """A tensor's only element, or a number as it is."""
    return value.reshape(()) if isinstance(value, torch.Tensor) else value


def quantize_tensor(x: Any, scale: Any, zero: Any, low: int, high: int, _: Any) -> torch.Tensor:
    return quantize(x, _scalar(scale), _scalar(zero), low, high)


def dequantize_tensor(x: Any, scale: Any, zero: Any, *_: Any) -> torch.Tensor:
    return dequantize(x, _scalar(scale), _scalar(zero))


def _per_row(parameter: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """One parameter per row of x."""
    return parameter.reshape(*x.shape[:-1], 1)


_DECOMPOSED = "quantized_decomposed."
REFERENCES.update(
    {
        f"{_DECOMPOSED}quantize_per_tensor.default": quantize_tensor,
        f"{_DECOMPOSED}quantize_per_tensor.tensor": quantize_tensor,
        f"{_DECOMPOSED}dequantize_per_tensor.default": dequantize_tensor,
        f"{_DECOMPOSED}dequantize_per_tensor.tensor": dequantize_tensor,
        f"{_DECOMPOSED}quantize_per_channel.default": lambda x, scales, zeros, axis, low, high, _: quantize(
            x, _along(scales, x, axis), _along(zeros, x, axis), low, high
        ),
        f"{_DECOMPOSED}dequantize_per_channel.default": lambda x, scales, zeros, axis, *_: dequantize(
            x, _along(scales, x, axis), 0 if zeros is None else _along(zeros, x, axis)
        ),
        f"{_DECOMPOSED}quantize_per_token.default": lambda x, scales, zeros, low, high, _: quantize(
            x, _per_row(scales, x), _per_row(zeros, x), low, high
        ),
        f"{_DECOMPOSED}dequantize_per_token.default": lambda x, scales, zeros, *_: dequantize(
            x, _per_row(scales, x), _per_row(zeros, x)
        ),
        "torchao.quantize_affine.default": lambda x, block, scale, zero, _, low, high: quantize(
            x, _of_blocks(scale, x, block), _of_blocks(zero, x, block), *_range(low, high)
        ),
        "torchao.dequantize_affine.default": lambda x, block, scale, zero, *_: dequantize(
            x, _of_blocks(scale, x, block), _of_blocks(zero, x, block)
        ),
    }
)


@reference("torchao.choose_qparams_affine.default")
def choose_of_blocks(
    x: Any, mapping: str, block: Sequence[int], _: Any, low: Any, high: Any, eps: Any, *rest: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    keepdim = rest[-1]
    low, high = _range(low, high)
    eps = torch.finfo(torch.float32).tiny if eps is None else eps
    counts = [size // along for size, along in zip(x.shape, block, strict=True)]
    in_blocks = x.float().reshape([size for pair in zip(counts, block, strict=True) for size in pair])
    inner = list(range(1, 2 * x.ndim, 2))
    least, most = in_blocks.amin(inner).clamp(max=0), in_blocks.amax(inner).clamp(min=0)
    if mapping == "ASYMMETRIC":
        scale = ((most - least) / (high - low)).clamp(min=eps)
        zero = torch.clamp(low - torch.round(least / scale), low, high)
    else:
        if mapping == "SYMMETRIC":
            scale = torch.maximum(-least, most) / ((high - low) / 2)
        else:
            scale = torch.maximum(least / low, most / high)
        scale = scale.clamp(min=eps)
        zero = torch.full_like(scale, int((high + low + 1) / 2))
    if not keepdim:
        kept = [
            count
            for count, size, along in zip(counts, x.shape, block, strict=True)
            if along == 1 or along != size
        ]
        scale, zero = scale.reshape(kept), zero.reshape(kept)
    return scale.double(), zero.long()


@reference("quantized_decomposed.choose_qparams_per_token_asymmetric.default")
def choose_of_tokens(x: Any, _: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.float()
    least, most = x.amin(-1, keepdim=True).clamp(max=0), x.amax(-1, keepdim=True).clamp(min=0)
    scale = ((most - least) / float(_HIGH - _LOW)).clamp(min=torch.finfo(torch.float32).eps)
    from_least, from_most = least / scale, most / scale
    is_nearer = (_LOW + from_least) + (_HIGH + from_most) > 0
    zero = torch.where(is_nearer, _LOW - from_least, _HIGH - from_most)
    return scale.double(), torch.clamp(torch.round(zero), _LOW, _HIGH).long()


@reference("quantized_decomposed.choose_qparams.tensor")
def choose_of_tensor(x: Any, low: int, high: int, eps: float, _: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.float()
    least, most = x.min().clamp(max=0), x.max().clamp(min=0)
    scale = ((most - least) / float(high - low)).clamp(min=eps)
    zero = torch.clamp(low - torch.round(least / scale), low, high)
    return scale.double().reshape(1), zero.long().reshape(1)


def scaled(sums: torch.Tensor, x_scale: float, scales: Any, bias: Any, dim: int) -> torch.Tensor:
    """Exact sums as numbers: times the scales of channels along a dim, plus their bias."""
    channels = sums.shape[dim]
    factors = scales[:channels].float() * torch.tensor(x_scale, dtype=torch.float32)
    numbers = sums.float() * _along(factors, sums, dim)
    return numbers if bias is None else numbers + _along(bias[:channels].float(), sums, dim)


def rounded(numbers: torch.Tensor, scale: float, zero: int, activation: str = "none") -> torch.Tensor:
    """Numbers quantised to int8, after the activation."""
    if activation not in ("none", "relu"):
        raise ValueError(f"activation {activation!r}")
    return quantize(numbers.relu() if activation == "relu" else numbers, scale, zero, -128, 127)


@reference("et_vk.q8ta_add.default")
def add(a: Any, b: Any, *parameters: Any) -> torch.Tensor:
    a_scale, a_zero, b_scale, b_zero, scale, zero, alpha = parameters
    total = dequantize(a, a_scale, a_zero).float() + alpha * dequantize(b, b_scale, b_zero).float()
    return rounded(total, scale, zero)


@reference("et_vk.q8ta_relu.default")
def relu(x: Any, x_scale: float, x_zero: int, scale: float, zero: int) -> torch.Tensor:
    return rounded(dequantize(x, x_scale, x_zero), scale, zero, "relu")


@reference("et_vk.q8ta_pixel_shuffle.default")
def pixel_shuffle(
    x: Any, x_scale: float, x_zero: int, inverse: float, zero: int, factor: int
) -> torch.Tensor:
    shuffled = torch.nn.functional.pixel_shuffle(dequantize(x, x_scale, x_zero), factor)
    return rounded(shuffled, 1 / inverse, zero)


def _sums(x: torch.Tensor, zero: int, weights: torch.Tensor) -> torch.Tensor:
    """Of products with rows of weights, which may be padded."""
    return (x.double() - zero) @ weights.double()[:, : x.shape[-1]].T


@reference("et_vk.linear_q8ta_q8csw.default")
def linear_to_floats(
    x: Any, x_scale: float, x_zero: int, weights: Any, _: Any, scales: Any, bias: Any
) -> torch.Tensor:
    return scaled(_sums(x, x_zero, weights), x_scale, scales, bias, -1)


@reference("et_vk.q8ta_linear.default", "et_vk.q8ta_linear_gemv.default")
def linear(
    x: Any, x_scale: float, x_zero: int, weights: Any, _: Any, scales: Any, *rest: Any
) -> torch.Tensor:
    scale, zero, bias, activation = rest
    return rounded(scaled(_sums(x, x_zero, weights), x_scale, scales, bias, -1), scale, zero, activation)


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
