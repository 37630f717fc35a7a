"""Oracles of int8 arithmetic: exact sums, then PyTorch's float32 from there on."""

from __future__ import annotations

from typing import Any

import numpy as np
from arguments import TensorArgument, weight

FULL: dict[str, Any] = {"dtype": "i8", "low": -128, "high": 127}  # of a tensor of every int8


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


ADD = "et_vk.q8ta_add.default"
RELU = "et_vk.q8ta_relu.default"
SHUFFLE = "et_vk.q8ta_pixel_shuffle.default"
LINEAR = "et_vk.q8ta_linear.default"


def factors(columns: int, depth: int) -> tuple[Any, ...]:
    """Weights, their sums and scales."""
    values = random_int8(columns, depth)
    return (weight(values=values, dtype="i8"), *parameters(values.sum(1), columns))
