"""KV caches in 8 bits, modelled in NumPy: blocks of 32 elements of a head, each a scale, then its codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from arguments import Array, TensorArgument, weight


def packed(values: Array) -> Array:
    """Floats [..., width] as words [..., width / 4 and one for each block]."""
    parts = []
    for start in range(0, values.shape[-1], 32):
        block = values[..., start : start + 32].astype(np.float32)
        largest = np.abs(block).max(-1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.where(largest > 0, np.float32(127) / largest, np.float32(0))
            codes = np.nan_to_num(np.rint(block * factor)).astype(np.int8)
        parts += [(largest / np.float32(127)).view(np.int32), np.ascontiguousarray(codes).view(np.int32)]
    return np.concatenate(parts, -1)


def unpacked(words: Array) -> Array:
    """The floats of such words."""
    parts = []
    for start in range(0, words.shape[-1], 9):
        block = np.ascontiguousarray(words[..., start : start + 9].astype(np.int32))
        codes = np.ascontiguousarray(block[..., 1:]).view(np.int8)
        with np.errstate(invalid="ignore"):  # zero times infinity
            parts.append(codes * block[..., :1].view(np.float32).astype(np.float64))
    return np.concatenate(parts, -1)


def empty_caches(*shape: int) -> tuple[TensorArgument, TensorArgument]:
    """Caches of keys and values of this shape in floats, all zeros."""
    return int8_cache(np.zeros(shape)), int8_cache(np.zeros(shape))


def int8_cache(values: Array) -> TensorArgument:
    return weight(values=packed(values), dtype="i32")


def floats_of(cache: Any) -> Any:
    """A copy of a cache as an oracle keeps it, in floats."""
    if cache is None or cache.is_floating_point():
        return cache if cache is None else cache.clone()
    return torch.from_numpy(unpacked(cache.numpy()))


def stored(x: Any, cache: Any) -> Any:
    """New keys or values as a cache of this type returns them."""
    if x is None or cache.is_floating_point():
        return x
    return torch.from_numpy(unpacked(packed(x.numpy())))
