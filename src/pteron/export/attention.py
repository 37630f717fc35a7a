"""Attention in operators that delegates have; PyTorch's own decomposition leaves some to the host."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


def decompose_attention(exported: ExportedProgram) -> ExportedProgram:
    """The program with its scaled_dot_product_attention written out; itself, where it has none."""
    import torch

    operator = torch.ops.aten.scaled_dot_product_attention.default
    if not any(node.target is operator for node in exported.graph.nodes):
        return exported
    return exported.run_decompositions({operator: _attention})


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(scale · query · keyᵀ + mask) · value, where a row whose keys are all hidden gives zeros."""
    import torch

    if is_causal or enable_gqa or dropout_p:
        return NotImplemented
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query * factor) @ key.transpose(-2, -1)
    if attn_mask is None:  # no key is hidden
        return torch.softmax(scores, -1) @ value
    if attn_mask.dtype == torch.bool:
        scores = torch.where(attn_mask, scores, torch.full_like(scores, -math.inf))
    else:
        scores = scores + attn_mask
    is_hidden = scores.amax(-1, keepdim=True) == -math.inf
    weights = torch.softmax(scores, -1)
    return torch.where(is_hidden, torch.zeros_like(weights), weights) @ value
