"""Floats to integers and back, and the scales and zero points for it: in float32, step by step as PyTorch
has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pteron.reference.table import reference

_LOW, _HIGH = -128, 127  # where an operator leaves the range to the type, which is int8


def _along(parameter: Any, x: torch.Tensor, axis: int) -> torch.Tensor:
    """One parameter per place on an axis, as one per element."""
    shape = [1] * x.ndim
    shape[axis] = -1
    return torch.as_tensor(parameter).reshape(shape)


def _of_blocks(parameter: torch.Tensor, x: torch.Tensor, block: Sequence[int]) -> torch.Tensor:
    """One parameter per block, as one per element."""
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


@reference(
    "quantized_decomposed.quantize_per_tensor.default", "quantized_decomposed.quantize_per_tensor.tensor"
)
def quantize_tensor(x: Any, scale: Any, zero: Any, low: int, high: int, _: Any) -> torch.Tensor:
    return quantize(x, _scalar(scale), _scalar(zero), low, high)


@reference(
    "quantized_decomposed.dequantize_per_tensor.default", "quantized_decomposed.dequantize_per_tensor.tensor"
)
def dequantize_tensor(x: Any, scale: Any, zero: Any, *_: Any) -> torch.Tensor:
    return dequantize(x, _scalar(scale), _scalar(zero))


def _scalar(value: Any) -> Any:
    """A tensor's only element, or a number as it is."""
    return value.reshape(()) if isinstance(value, torch.Tensor) else value


@reference("quantized_decomposed.quantize_per_channel.default")
def quantize_channels(
    x: Any, scales: Any, zeros: Any, axis: int, low: int, high: int, _: Any
) -> torch.Tensor:
    return quantize(x, _along(scales, x, axis), _along(zeros, x, axis), low, high)


@reference("quantized_decomposed.dequantize_per_channel.default")
def dequantize_channels(x: Any, scales: Any, zeros: Any, axis: int, *_: Any) -> torch.Tensor:
    return dequantize(x, _along(scales, x, axis), 0 if zeros is None else _along(zeros, x, axis))


@reference("quantized_decomposed.quantize_per_token.default")
def quantize_tokens(x: Any, scales: Any, zeros: Any, low: int, high: int, _: Any) -> torch.Tensor:
    rows = (*x.shape[:-1], 1)
    return quantize(x, scales.reshape(rows), zeros.reshape(rows), low, high)


@reference("quantized_decomposed.dequantize_per_token.default")
def dequantize_tokens(x: Any, scales: Any, zeros: Any, *_: Any) -> torch.Tensor:
    rows = (*x.shape[:-1], 1)
    return dequantize(x, scales.reshape(rows), zeros.reshape(rows))


@reference("torchao.quantize_affine.default")
def quantize_blocks(
    x: Any, block: Any, scale: Any, zero: Any, _: Any, low: float | None, high: float | None
) -> torch.Tensor:
    zeros = 0 if zero is None else _of_blocks(zero, x, block)
    bounds = _LOW if low is None else low, _HIGH if high is None else high
    return quantize(x, _of_blocks(scale, x, block), zeros, *bounds)


@reference("torchao.dequantize_affine.default")
def dequantize_blocks(x: Any, block: Any, scale: Any, zero: Any, *_: Any) -> torch.Tensor:
    zeros = 0 if zero is None else _of_blocks(zero, x, block)
    return dequantize(x, _of_blocks(scale, x, block), zeros)


@reference("torchao.choose_qparams_affine.default")
def choose_of_blocks(
    x: Any, mapping: str, block: Sequence[int], _: Any, low: Any, high: Any, eps: Any, *rest: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    keepdim = rest[-1]
    low, high = _LOW if low is None else low, _HIGH if high is None else high
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
