"""A mixture of experts as one operator: its arguments, and what it computes in float64."""

from __future__ import annotations

from typing import Any

import torch
from arguments import tensor, weight
from quantized_cases import packed, scales

from pteron.reference.experts import combine, experts_q4, route

PLAIN = (1, 1, 1)  # groups, kept groups, best of a group


def mlp(x: Any, gain: Any, eps: float, router: Any, router_bias: Any, *rest: Any) -> torch.Tensor:
    """A mixture of experts, in float64."""
    routing, (gate, gate_scales, up, up_scales, down, down_scales, group, residual) = rest[:8], rest[8:]
    if gain is not None:
        x = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * gain
    logits = x @ router.T + (0 if router_bias is None else router_bias)
    weights, chosen = route(logits, *routing)
    count = len(router)
    left, right = (
        experts_q4(x, chosen, *pair, group, count) for pair in ((gate, gate_scales), (up, up_scales))
    )
    hidden = torch.nn.functional.silu(left) * right
    out = combine(experts_q4(hidden, chosen, down, down_scales, group, count), weights)
    return out if residual is None else out + residual


def mlp_arguments(depth: int, hidden: int, count: int, k: int, is_full: bool) -> list[Any]:
    """With a norm, biases and a residual, or without."""

    def four_bits(rows: int, columns: int) -> list[Any]:
        return [weight(values=packed(count * rows, columns), dtype="u8"), scales(columns, 32, count * rows)]

    routing = (
        (k, "sigmoid", weight(count), 1, 1, 1, True, 2.5)
        if is_full
        else (k, "softmax", None, *PLAIN, False, 1.0)
    )
    matrices = [*four_bits(hidden, depth), *four_bits(hidden, depth), *four_bits(depth, hidden)]
    router, bias = weight(count, depth, low=-0.2, high=0.2), weight(count) if is_full else None
    gain, residual = (weight(depth, low=-0.5, high=0.5), tensor("M", depth)) if is_full else (None, None)
    return [tensor("M", depth, low=-1, high=1), gain, 1e-5, router, bias, *routing, *matrices, 32, residual]
