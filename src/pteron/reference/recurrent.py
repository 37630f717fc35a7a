"""Layers with a recurrent state, which each reference changes in place. Position 0 means a state of zeros."""

from __future__ import annotations

from typing import Any

import torch

from pteron.reference.table import reference


@reference("pteron.short_conv.default")
def short_conv(x: Any, weight: Any, bias: Any, silu: bool, state: Any, start: int) -> torch.Tensor:
    if start == 0:
        state.zero_()
    inputs = torch.cat([state, x], 1)
    state.copy_(inputs[:, x.shape[1] :])
    y = torch.nn.functional.conv1d(inputs.mT, weight[:, None], bias, groups=len(weight)).mT
    return torch.nn.functional.silu(y) if silu else y


@reference("pteron.gated_delta_rule.default")
def gated_delta_rule(q: Any, k: Any, v: Any, g: Any, beta: Any, state: Any, start: int) -> torch.Tensor:
    if start == 0:
        state.zero_()
    q, k = (each.repeat_interleave(v.shape[2] // each.shape[2], 2) for each in (q, k))
    results = []
    for step in range(v.shape[1]):
        state *= g[:, step, :, None, None].exp()
        key = k[:, step, :, :, None]
        change = beta[:, step, :, None] * (v[:, step] - (state * key).sum(2))
        state += key * change[:, :, None]
        results.append((state * q[:, step, :, :, None]).sum(2))
    return torch.stack(results, 1)


@reference("pteron.ssm_scan.default")
def ssm_scan(
    xbc: Any,
    dt: Any,
    a: Any,
    d: Any,
    dt_bias: Any,
    groups: int,
    dt_min: float,
    dt_max: float | None,
    state: Any,
    start: int,
) -> torch.Tensor:
    if start == 0:
        state.zero_()
    _, heads, width, columns = state.shape
    deltas = torch.nn.functional.softplus(dt + dt_bias).clamp(dt_min, dt_max)
    results = []
    for step, delta in zip(xbc[0], deltas[0], strict=True):
        x, b, c = step.split([heads * width, groups * columns, groups * columns])
        x = x.reshape(heads, width)
        b, c = (part.reshape(groups, columns).repeat_interleave(heads // groups, 0) for part in (b, c))
        state *= (delta * a).exp()[:, None, None]
        state += (delta[:, None] * x)[..., None] * b[:, None]
        results.append(((state[0] * c[:, None]).sum(-1) + d[:, None] * x).flatten())
    return torch.stack(results)[None]
