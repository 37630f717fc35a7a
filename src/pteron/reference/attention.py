"""Attention, with and without KV caches, and rotary embeddings."""

from __future__ import annotations

import math
from typing import Any

import torch

from pteron.reference.table import reference


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float | None,
    causal_from: int | None = None,
    window: int | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
    slopes: torch.Tensor | None = None,
) -> torch.Tensor:
    """softmax(scale · q·kᵀ + mask) · v of [batch, heads, steps, width], where heads may share keys. A
    query at step s sees the keys up to `causal_from` + s, or all of them; with a window, the last of these.
    A soft cap bounds the scores. Slopes, one per head, lower them with the distance of a key (ALiBi). A sink
    is a score per head that takes its part of the softmax, but has no value."""
    shared = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    steps, context = scores.shape[-2:]
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if causal_from is not None:
        ahead = torch.arange(context)[None] - torch.arange(steps)[:, None] - causal_from
        if slopes is not None:
            scores = scores + slopes[:, None, None] * ahead
        scores = scores.masked_fill((ahead > 0) | (ahead <= -(window or math.inf)), -math.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    if sinks is None:
        return torch.softmax(scores, -1) @ v
    columns = sinks[None, :, None, None].expand(*scores.shape[:-1], 1)
    return torch.softmax(torch.cat((scores, columns), -1), -1)[..., :-1] @ v


def attend_steps_first(q: Any, k: Any, v: Any, *rest: Any) -> torch.Tensor:
    """The same of [batch, steps, heads, width]."""
    return attend(*(x.transpose(1, 2) for x in (q, k, v)), *rest).transpose(1, 2)


@reference("et_vk.sdpa.default")
def sdpa(q: Any, k: Any, v: Any, mask: Any, scale: Any) -> torch.Tensor:
    return attend(q, k, v, mask, scale)


@reference("custom_sdpa.default")
def custom_sdpa(q: Any, k: Any, v: Any, start: int, mask: Any, _: Any, causal: bool, scale: Any) -> Any:
    """Over keys up to the last query's position, or over all keys if there is a mask."""
    if mask is None:
        k, v = k[:, : start + q.shape[1]], v[:, : start + q.shape[1]]
    return attend_steps_first(q, k, v, mask, scale, start if causal else None)


@reference("sdpa_with_kv_cache.default")
def sdpa_with_cache(
    q: Any, k: Any, v: Any, k_cache: Any, v_cache: Any, start: int, _: Any, mask: Any, *rest: Any
) -> torch.Tensor:
    """New keys and values are written first, so queries see them."""
    _, causal, scale = rest
    end = start + k.shape[1]
    k_cache[:, start:end], v_cache[:, start:end] = k, v
    seen = k_cache[:, :end], v_cache[:, :end]
    return attend_steps_first(q, *seen, mask, scale, start if causal else None)


@reference("pteron.attention.default")
def attention(
    q: Any, k: Any, v: Any, k_cache: Any, v_cache: Any, start: int, scale: Any, *options: Any
) -> torch.Tensor:
    """The same with a window, a soft cap, sinks and slopes. Without values, they are columns of the keys."""
    *options_of_softmax, value_width = options
    end = start + k.shape[1]
    k_cache[:, start:end] = k
    if v is None:
        v_cache = k_cache[..., :value_width]
    else:
        v_cache[:, start:end] = v
    return attend_steps_first(q, k_cache[:, :end], v_cache[:, :end], None, scale, start, *options_of_softmax)


@reference("update_cache.default")
def update_cache(value: torch.Tensor, cache: torch.Tensor, start: int) -> torch.Tensor:
    """The cache changes in place; the output only orders the calls and holds 0."""
    cache[:, start : start + value.shape[1]] = value
    return torch.zeros(1, dtype=torch.float64)


Pair = tuple[torch.Tensor, torch.Tensor]


def _rotate_neighbours(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """x[..., 2i] and x[..., 2i + 1] are a pair; the tables have one number for each."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cosines - odd * sines, even * sines + odd * cosines), -1).flatten(-2)


def _beside_heads(table: torch.Tensor, steps: int, heads: int) -> torch.Tensor:
    has_heads = table.ndim == 4 or (
        table.ndim == 3 and table.shape[0] == steps and table.shape[1] in (1, heads)
    )
    return table if has_heads else table.unsqueeze(-2)


@reference("et_vk.apply_rotary_emb.default")
def rope(xq: torch.Tensor, xk: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> Pair:
    """Queries and keys are [batch, steps, heads, width]. The tables are [steps, width / 2]; they may have
    batches and heads, too."""
    cosines, sines = (_beside_heads(table, *xq.shape[1:3]) for table in (cosines, sines))
    return _rotate_neighbours(xq, cosines, sines), _rotate_neighbours(xk, cosines, sines)


@reference("et_vk.apply_rotary_emb_hf.default")
def rope_hf(
    xq: torch.Tensor, xk: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor, start: int
) -> Pair:
    """x[i] and x[i + half] are a pair, of as many numbers as the tables are wide; the rest stays."""

    def rotate(x: torch.Tensor) -> torch.Tensor:
        width, rows = cosines.shape[1], slice(start, start + x.shape[1])
        rotated, rest = x[..., :width], x[..., width:]
        lower, upper = rotated.chunk(2, -1) if width else (rotated, rotated)
        crossed = torch.cat((-upper, lower), -1) if width else rotated
        return torch.cat((rotated * cosines[rows, None] + crossed * sines[rows, None], rest), -1)

    return rotate(xq), rotate(xk)


@reference("et_vk.apply_rotary_emb_interleaved.default")
def rope_interleaved(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """The table has cosine and sine in turn."""
    return _rotate_neighbours(x, table[..., 0::2], table[..., 1::2])
