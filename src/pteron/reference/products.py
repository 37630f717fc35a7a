"""Products with weights of 4 and 8 bits, convolution with bounds, embeddings of 4-bit rows, and training:
cross entropy with its gradient, gradients of layers, AdamW, and requantised 4-bit weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pteron.reference.table import reference

_ROWS = 8192  # of weights unpacked at a time: all rows of a large vocabulary would take gigabytes


def nibbles(packed: torch.Tensor, *, upper_first: bool = False) -> torch.Tensor:
    """Rows of bytes as rows of numbers from -8 to 7, two to a byte."""
    pair = [packed & 15, packed >> 4]
    return torch.stack(pair[::-1] if upper_first else pair, -1).flatten(1) - 8


def grouped(rows: torch.Tensor, scales: torch.Tensor, group: int) -> torch.Tensor:
    """Numbers times the scale of their group; scales are [rows, groups], groups run along a row."""
    return rows * scales.repeat_interleave(group, 1)[:, : rows.shape[1]]


def matrix_q4(weights: torch.Tensor, scales: torch.Tensor, group: int, depth: int) -> torch.Tensor:
    """The matrix [n, depth] of packed rows [n, depth / 2 or more] and scales [groups, n or more]."""
    return grouped(nibbles(weights)[:, :depth], scales.T[: len(weights)], group)


def _in_parts(weights: torch.Tensor, product: Callable[[slice], torch.Tensor]) -> torch.Tensor:
    """A product's columns, some rows of weights at a time."""
    starts = range(0, max(len(weights), 1), _ROWS)
    return torch.cat([product(slice(start, start + _ROWS)) for start in starts], -1)


def _with_bias(product: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return product if bias is None else product + bias[: product.shape[-1]]


def product_q4(x: torch.Tensor, weights: torch.Tensor, scales: torch.Tensor, group: int) -> torch.Tensor:
    """x times the transpose of weights [n, depth / 2] by scales [groups, n or more]."""

    def part(rows: slice) -> torch.Tensor:
        return x @ matrix_q4(weights[rows], scales[:, rows], group, x.shape[-1]).T

    return _in_parts(weights, part)


@reference("et_vk.linear_q4gsw.default")
def linear_q4(x: Any, weights: Any, scales: Any, group: int, bias: Any) -> torch.Tensor:
    return _with_bias(product_q4(x, weights, scales, group), bias)


@reference("et_vk.linear_dq8ca_q4gsw.default")
def linear_dynamic_q4(
    x: Any, x_scales: Any, zeros: Any, weights: Any, _: Any, scales: Any, group: int, bias: Any
) -> torch.Tensor:
    """Rows of x are rounded to int8, each by its own scale and zero, before they are multiplied."""
    x_scales = x_scales.reshape(*x.shape[:-1], 1)
    zeros = zeros.reshape(*x.shape[:-1], 1)
    rounded = torch.round(x.float() * (1.0 / x_scales.float()))
    steps = torch.clamp(rounded.double() + zeros, -128, 127) - zeros
    return _with_bias(product_q4(steps, weights, scales, group) * x_scales, bias)


@reference("et_vk.linear_q4gsw_backward.default")
def linear_q4_backward(d_out: Any, weights: Any, scales: Any, group: int) -> torch.Tensor:
    return d_out @ matrix_q4(weights, scales, group, 2 * weights.shape[1])


@reference("et_vk.linear_qcs4w.default")
def linear_by_channel_q4(x: Any, weights: Any, scales: Any) -> torch.Tensor:
    numbers = nibbles(weights, upper_first=True)[:, : x.shape[-1]]
    return (x @ numbers.double().T) * scales[: len(weights)]


@reference("aten._weight_int8pack_mm.default")
def linear_int8_weights(x: Any, weights: Any, scales: Any) -> torch.Tensor:
    return (x @ weights.double().T) * scales[: len(weights)]


def matrix_q8(weights: Any, scales: Any, minima: Any, group: int) -> torch.Tensor:
    """The matrix of integers [n, k] with scales and minima [groups, n or more]."""
    rows = grouped(weights.double(), scales.T[: len(weights)], group)
    if minima is None:
        return rows
    return rows + grouped(torch.ones_like(rows), minima.T[: len(weights)], group)


@reference("pteron.linear_q8gsw.default")
def linear_q8(x: Any, weights: Any, scales: Any, minima: Any, group: int, bias: Any) -> torch.Tensor:
    def part(rows: slice) -> torch.Tensor:
        least = None if minima is None else minima[:, rows]
        return x @ matrix_q8(weights[rows], scales[:, rows], least, group).T

    return _with_bias(_in_parts(weights, part), bias)


@reference("et_vk.conv_with_clamp.default")
def clamped_convolution(*arguments: Any) -> torch.Tensor:
    *convolution, low, high = arguments
    result: torch.Tensor = torch.ops.aten.convolution.default(*convolution)
    return result if low is None and high is None else torch.clamp(result, low, high)


@reference("et_vk.embedding_q4gsw.default")
def embedding_q4(weights: Any, scales: Any, group: int, indices: Any, in_linear_order: bool) -> torch.Tensor:
    """The upper nibble of a byte comes first, unless the table is also the weight of a linear layer."""
    picked = indices.reshape(-1)
    rows = nibbles(weights[picked], upper_first=not in_linear_order)
    return grouped(rows, scales[picked], group).reshape(*indices.shape, -1)


@reference("pteron.embedding_q8gsw.default")
def embedding_q8(weights: Any, scales: Any, minima: Any, group: int, indices: Any) -> torch.Tensor:
    picked = indices.reshape(-1)
    least = None if minima is None else minima[:, picked]
    rows = matrix_q8(weights[picked], scales[:, picked], least, group)
    return rows.reshape(*indices.shape, -1)


@reference("quantized_decomposed.embedding_4bit.dtype")
def embedding_4bit(
    weights: Any, scales: Any, zeros: Any, _: int, __: int, indices: Any, ___: Any
) -> torch.Tensor:
    picked = indices.reshape(-1)
    rows = nibbles(weights[picked], upper_first=True)
    scales = scales.reshape(len(weights), -1)
    group = rows.shape[1] // scales.shape[1]
    if zeros is not None:
        rows = rows - zeros.reshape(scales.shape)[picked].repeat_interleave(group, 1)
    return grouped(rows, scales[picked], group).reshape(*indices.shape, -1)


@reference("et_vk.fused_ce.default")
def cross_entropy(logits: Any, labels: Any, valid_count: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean over rows with a label, and its gradient; a row whose label is below 0 counts for nothing."""
    valid = labels >= 0
    logs = torch.log_softmax(logits, -1)
    picked = labels.clamp(min=0)[:, None]
    losses = -logs.gather(1, picked)[:, 0]
    loss = torch.where(valid, losses, 0.0).sum() / valid_count
    target = torch.zeros_like(logits).scatter_(1, picked, 1.0)
    gradient = torch.where(valid[:, None], (torch.exp(logs) - target) / valid_count, 0.0)
    return loss, gradient


@reference("et_vk.linear_dW.default")
def weight_gradient(d_out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return d_out.reshape(-1, d_out.shape[-1]).T @ x.reshape(-1, x.shape[-1])


@reference("adamw_step.default", "et_vk.adamw_step.default")
def adamw_step(p: Any, m: Any, v: Any, gradient: Any, *rates: float) -> tuple[torch.Tensor, ...]:
    """Parameter and moments change in place, and are the outputs, too."""
    rate, beta1, beta2, eps, decay, correction1, correction2 = rates
    m.mul_(beta1).add_((1 - beta1) * gradient)
    v.mul_(beta2).add_((1 - beta2) * gradient * gradient)
    p.mul_(1 - rate * decay).sub_(rate * (m / correction1) / ((v / correction2).sqrt() + eps))
    return p.clone(), m.clone(), v.clone()


@reference("et_vk.q4gsw_requant.default")
def requantize(latent: torch.Tensor, scales: torch.Tensor, group: int) -> torch.Tensor:
    """Numbers over their group's scale as nibbles from 0 to 15, 8 for none, two to a byte; in float32."""
    numbers = latent.float()
    steps = scales.float().T.repeat_interleave(group, 1)[: len(numbers), : numbers.shape[1]]
    quotients = torch.where(steps == 0, 0.0, torch.round(numbers / steps))
    codes = torch.nn.functional.pad(quotients.clamp(-8, 7).long() + 8, (0, numbers.shape[1] % 2))
    return codes[:, ::2] | codes[:, 1::2] << 4


@reference("transformers.grouped_mm_fallback.default")
def grouped_mm(rows: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Rows times the matrix of their group; `ends` are the ends of the groups."""
    groups = torch.searchsorted(ends, torch.arange(len(rows), dtype=ends.dtype), right=True)
    return torch.bmm(rows[:, None], weights[groups.clamp(max=len(weights) - 1)])[:, 0]
