"""Mixtures of experts: routing, products with chosen matrices, weighted sums."""

from __future__ import annotations

from typing import Any

import torch

from pteron.reference.products import matrix_q4, matrix_q8
from pteron.reference.table import reference


@reference("pteron.route.default")
def route(
    logits: Any,
    k: int,
    scoring: str,
    bias: Any,
    groups: int,
    kept_groups: int,
    group_best: int,
    normalised: bool,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    scores = torch.sigmoid(logits) if scoring == "sigmoid" else torch.softmax(logits, -1)
    choice = scores if bias is None else scores + bias
    if groups > 1:
        by_group = choice.reshape(len(choice), groups, -1)
        sums = by_group.topk(group_best).values.sum(-1)
        kept = torch.zeros_like(sums, dtype=torch.bool).scatter(1, sums.topk(kept_groups).indices, True)
        choice = by_group.masked_fill(~kept[..., None], float("-inf")).reshape(choice.shape)
    experts = torch.sort(choice, descending=True, stable=True).indices[:, :k]
    weights = scores.gather(1, experts)
    if normalised:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights * scale, experts


@reference("pteron.combine.default")
def combine(x: Any, weights: Any) -> torch.Tensor:
    return (x * weights[..., None]).sum(1)


def _product(x: Any, experts: Any, matrices: torch.Tensor, count: int) -> torch.Tensor:
    if experts is None:
        experts = torch.arange(count).expand(x.shape[:2])
    chosen = matrices.reshape(count, -1, matrices.shape[-1])[experts]
    rows = x[:, None] if x.ndim == 2 else x
    return (chosen @ rows.expand(*experts.shape, -1)[..., None])[..., 0]


@reference("pteron.experts_linear.default")
def experts_linear(x: Any, experts: Any, weight: Any, count: int) -> torch.Tensor:
    return _product(x, experts, weight, count)


@reference("pteron.experts_int8.default")
def experts_int8(x: Any, experts: Any, weight: Any, scales: Any, count: int) -> torch.Tensor:
    return _product(x, experts, weight * scales[: len(weight), None], count)


@reference("pteron.experts_q4gsw.default")
def experts_q4(x: Any, experts: Any, weight: Any, scales: Any, group: int, count: int) -> torch.Tensor:
    return _product(x, experts, matrix_q4(weight, scales, group, x.shape[-1]), count)


@reference("pteron.experts_q8gsw.default")
def experts_q8(
    x: Any, experts: Any, weight: Any, scales: Any, minima: Any, group: int, count: int
) -> torch.Tensor:
    return _product(x, experts, matrix_q8(weight, scales, minima, group), count)
