"""Names and arguments of products and embeddings with weights of 4 and 8 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.ao.quantization.fx._decomposed  # registers the operators
from arguments import Array, weight

from pteron.reference.products import nibbles

LINEAR = "et_vk.linear_q4gsw.default"
DYNAMIC = "et_vk.linear_dq8ca_q4gsw.default"
EMBEDDING = "et_vk.embedding_q4gsw.default"
EMBEDDING_4BIT = "quantized_decomposed.embedding_4bit.dtype"


def packed(columns: int, depth: int) -> Array:
    """Random 4-bit rows [n, k/2]: k is padded to whole words by zeros, which are stored as 8."""
    nibbles = np.random.default_rng(1).integers(0, 16, (columns, -(-depth // 8) * 8)).astype(np.uint8)
    nibbles[:, depth:] = 8
    return nibbles[:, ::2] | nibbles[:, 1::2] << 4


def scales(depth: int, group: int, columns: int) -> Any:
    padded = -(-columns // 4) * 4
    return weight(-(-depth // group), padded, low=0.01, high=0.2)


def sums(columns: int, depth: int, group: int) -> Any:
    """Σ w of each group of the packed rows, [group, n padded]."""
    rows = nibbles(torch.from_numpy(packed(columns, depth)).to(torch.int64)).numpy()[:, :depth]
    starts = np.arange(0, depth, group)
    by_group = np.add.reduceat(rows, starts, axis=1).T
    return weight(values=np.pad(by_group, ((0, 0), (0, -columns % 8))), dtype="i32")


QCS4W = "et_vk.linear_qcs4w.default"
INT8 = "aten._weight_int8pack_mm.default"


def random_nibbles(columns: int, depth: int) -> Any:
    return weight(columns, -(-depth // 2), dtype="u8", low=0, high=255)


def bytes_of(columns: int, depth: int) -> Any:
    return weight(columns, depth, dtype="i8", low=-128, high=127)


def scales_of(columns: int) -> Any:
    return weight(columns, low=0.001, high=0.01)


LINEAR_Q8 = "pteron.linear_q8gsw.default"
EMBEDDING_Q8 = "pteron.embedding_q8gsw.default"
EXPERTS_Q8 = "pteron.experts_q8gsw.default"


def groups_of(columns: int, depth: int, group: int, *, minima: bool) -> tuple[Any, ...]:
    """8-bit rows [n, k], scales [groups, n] and perhaps minima, and the group size."""
    shape = (-(-depth // group), columns)
    least = weight(*shape, dtype="f32", low=-0.5, high=0.1) if minima else None
    return bytes_of(columns, depth), weight(*shape, dtype="f32", low=-0.01, high=0.01), least, group


AFFINE = "torchao.choose_qparams_affine.default"
PER_TENSOR = "quantized_decomposed.choose_qparams.tensor"
PER_TOKEN = "quantized_decomposed.choose_qparams_per_token_asymmetric.default"


def per_tensor(x: Any, low: int, high: int, eps: float, kind: Any) -> Any:
    return torch.ops.quantized_decomposed.choose_qparams(x.float(), low, high, eps, torch.int8)


def per_token(x: Any, kind: Any) -> Any:
    return torch.ops.quantized_decomposed.choose_qparams_per_token_asymmetric(x.float(), torch.int8)
