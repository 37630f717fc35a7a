"""PyTorch's fused inference operators of `nn.MultiheadAttention` and `nn.TransformerEncoderLayer`, in plain
operators. PyTorch calls them without gradients, and has no decomposition of them."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear, relu


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Self-attention of [batch, rows, embed_dim]: PyTorch uses the operator for nothing else."""
    batch, rows, _ = query.shape
    projected = linear(query, qkv_weight, qkv_bias).view(batch, rows, 3, num_head, -1)
    q, k, v = (projected.select(2, part).transpose(1, 2) for part in range(3))
    scores = (q * (1 / math.sqrt(embed_dim // num_head))) @ k.transpose(-2, -1)
    if mask is not None:
        is_hidden = mask.to(torch.bool)
        if mask_type == 1:  # [batch, rows]; others are [rows, rows] or have all dims
            is_hidden = is_hidden[:, None, None]
        scores = torch.where(is_hidden, torch.full_like(scores, -math.inf), scores)
    weights = torch.softmax(scores, -1)
    output = linear((weights @ v).transpose(1, 2).reshape(batch, rows, embed_dim), proj_weight, proj_bias)
    if not need_weights:
        return output, output.new_empty(0)
    return output, weights.mean(1) if average_attn_weights else weights


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    def attend(x: Tensor) -> Tensor:
        weights = qkv_weight, qkv_bias, proj_weight, proj_bias
        return multi_head_attention(
            x, x, x, embed_dim, num_heads, *weights, mask, need_weights=False, mask_type=mask_type
        )[0]

    def feed_forward(x: Tensor) -> Tensor:
        hidden = linear(x, ffn_weight_1, ffn_bias_1)
        return linear(gelu(hidden) if use_gelu else relu(hidden), ffn_weight_2, ffn_bias_2)

    def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return layer_norm(x, (embed_dim,), weight, bias, eps)

    if norm_first:
        x = src + attend(norm(src, norm_weight_1, norm_bias_1))
        return x + feed_forward(norm(x, norm_weight_2, norm_bias_2))
    x = norm(src + attend(src), norm_weight_1, norm_bias_1)
    return norm(x + feed_forward(x), norm_weight_2, norm_bias_2)
