"""Tensors of int8 with one scale each: exact sums of integers, then float32 as PyTorch's own operators
have it."""

from __future__ import annotations

from typing import Any

import torch

from pteron.reference.quantizing import dequantize, quantize
from pteron.reference.table import reference


def scaled(sums: torch.Tensor, x_scale: float, scales: Any, bias: Any, dim: int) -> torch.Tensor:
    """Exact sums as numbers: times the scales of channels along a dim, plus their bias."""
    shape = [1] * sums.ndim
    shape[dim] = -1
    channels = sums.shape[dim]
    factors = scales[:channels].float() * torch.tensor(x_scale, dtype=torch.float32)
    numbers = sums.float() * factors.reshape(shape)
    return numbers if bias is None else numbers + bias[:channels].float().reshape(shape)


def rounded(numbers: torch.Tensor, scale: float, zero: int, activation: str = "none") -> torch.Tensor:
    """Numbers as int8 again, after what the operator does last."""
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
