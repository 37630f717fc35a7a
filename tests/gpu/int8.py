"""Oracles of int8 arithmetic: exact sums, then PyTorch's float32 from there on."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from arguments import TensorArgument, weight

FULL: dict[str, Any] = {"dtype": "i8", "low": -128, "high": 127}  # of a tensor of every int8


def quantized(value: Any, scale: float, zero: int, activation: str = "none") -> Any:
    """Floats of 32 bits as int8, by the order of operations of PyTorch's quantize_per_tensor."""
    value = torch.relu(value) if activation == "relu" else value
    return torch.clamp(torch.round(value.float() * (1.0 / scale)) + zero, -128, 127).to(torch.int64)


def dequantized(x: Any, scale: float, zero: int) -> Any:
    return (x.float() - zero) * scale


def scaled(sums: Any, x_scale: float, scales: Any, bias: Any, dim: int) -> Any:
    """Exact sums, held by float64, as numbers: by the scales of channels along a dim, and their bias."""
    shape = [1] * sums.ndim
    shape[dim] = -1
    channels = sums.shape[dim]
    factors = (scales.float() * np.float32(x_scale).item())[:channels].reshape(shape)
    added = torch.zeros(channels) if bias is None else bias.float()[:channels]
    return sums.float() * factors + added.reshape(shape)


def padded(values: Any, multiple: int = 4) -> Any:
    """A last dim filled up with zeros, as the exporter fills it."""
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, -values.shape[-1] % multiple)])


def parameters(sums: Any, channels: int, seed: int = 3) -> tuple[TensorArgument, TensorArgument]:
    """Sums of weights and their scales, both padded."""
    scales = np.random.default_rng(seed).uniform(0.001, 0.01, channels).astype(np.float32)
    return weight(values=padded(sums), dtype="i32"), weight(values=padded(scales), dtype="f32")


def random_int8(*shape: int) -> Any:
    return np.random.default_rng(1).integers(-128, 128, shape)


def bias_of(channels: int) -> TensorArgument:
    """A bias, padded."""
    values = np.random.default_rng(2).uniform(-1, 1, channels).astype(np.float32)
    return weight(values=padded(values), dtype="f32")
