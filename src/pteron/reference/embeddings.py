"""Rows of tables of 4-bit numbers."""

from __future__ import annotations

from typing import Any

import torch

from pteron.reference.products import grouped, nibbles
from pteron.reference.table import reference


def _picked(indices: torch.Tensor) -> torch.Tensor:
    return indices.reshape(-1)


@reference("et_vk.embedding_q4gsw.default")
def embedding_q4(weights: Any, scales: Any, group: int, indices: Any, in_linear_order: bool) -> torch.Tensor:
    """The upper nibble of a byte comes first, unless the table is the weight of a linear layer, too."""
    picked = _picked(indices)
    rows = nibbles(weights[picked], upper_first=not in_linear_order)
    return grouped(rows, scales[picked], group).reshape(*indices.shape, -1)


@reference("quantized_decomposed.embedding_4bit.dtype")
def embedding_4bit(
    weights: Any, scales: Any, zeros: Any, _: int, __: int, indices: Any, ___: Any
) -> torch.Tensor:
    picked = _picked(indices)
    rows = nibbles(weights[picked], upper_first=True)
    scales = scales.reshape(len(weights), -1)
    group = rows.shape[1] // scales.shape[1]
    if zeros is not None:
        rows = rows - zeros.reshape(scales.shape)[picked].repeat_interleave(group, 1)
    return grouped(rows, scales[picked], group).reshape(*indices.shape, -1)
