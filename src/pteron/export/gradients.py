"""Gradients in terms of operators that Pteron has, for `run_decompositions`: a step of training has them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def gradient_decompositions() -> dict[torch._ops.OpOverload, Callable[..., Any]]:
    import torch
    from torch._decomp import get_decompositions

    aten = torch.ops.aten
    return {
        **get_decompositions([aten.max_pool2d_with_indices_backward]),
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _attention,
        aten.convolution_backward.default: _convolution,
    }


def _convolution(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradient of the input is a convolution the other way. A weight multiplies the small side (the
    output, or the input of a transposed convolution) with windows of the large side: for each place in the
    kernel, its gradient is the product of both over all positions."""
    import torch

    dims = range(weight.ndim - 2)
    small, large = (input, grad_output) if transposed else (grad_output, input)
    of_input = of_weight = of_bias = None
    if output_mask[0]:
        spans = [dilation[d] * (weight.shape[2 + d] - 1) + 1 for d in dims]
        unread = [(large.shape[2 + d] + 2 * padding[d] - spans[d]) % stride[d] for d in dims]
        rest = [0 for _ in dims] if transposed else unread  # at the end, where no window begins
        of_input = torch.ops.aten.convolution(
            grad_output, weight, None, stride, padding, dilation, not transposed, rest, groups
        )
    if output_mask[1]:
        batch, channels, kernel = input.shape[0], weight.shape[1], weight.shape[2:]
        rows = small.reshape(batch * groups, -1, math.prod(small.shape[2:]))
        padded = torch.nn.functional.pad(large, [padding[d] for d in reversed(dims) for _ in range(2)])
        products = []
        for place in product(*map(range, kernel)):
            starts = [place[d] * dilation[d] for d in dims]
            ends = [starts[d] + (small.shape[2 + d] - 1) * stride[d] + 1 for d in dims]
            window = padded[(..., *map(slice, starts, ends, stride))]
            columns = window.reshape(batch * groups, channels, -1)
            products.append((rows @ columns.mT).reshape(batch, -1, channels).sum(0))
        of_weight = torch.stack(products, -1).reshape(weight.shape)
    if output_mask[2]:
        of_bias = grad_output.sum([0, *(2 + d for d in dims)])
    return of_input, of_weight, of_bias


def _attention(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """With the shares computed anew."""
    import torch

    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query @ key.mT * factor
    if attn_mask is not None:
        scores = scores + attn_mask
    if is_causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = torch.where(seen, scores, float("-inf"))
    shares = scores.softmax(-1)
    of_shares = grad_out @ value.mT
    of_scores = shares * (of_shares - (grad_out * out).sum(-1, keepdim=True)) * factor
    return of_scores @ key, of_scores.mT @ query, shares.mT @ grad_out
