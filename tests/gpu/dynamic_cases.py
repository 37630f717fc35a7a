"""The oracle of fused 4-bit products whose activations are quantised to int8."""

from __future__ import annotations

from typing import Any

import torch

from pteron.reference.products import matrix_q4

FUSED = "pteron.linear_dq8ca_q4"


def steps(x: Any, least: float | None) -> tuple[Any, Any]:
    """Rows as int8 less their zero points, and their scales: in f32, as the operators are defined."""
    x = x.to(torch.float32)
    low, high = x.amin(-1, keepdim=True).clamp(max=0), x.amax(-1, keepdim=True).clamp(min=0)
    scale = ((high - low) / 255).clamp(min=torch.finfo(torch.float32).tiny if least is None else least)
    zero = (-128 - torch.round(low / scale)).clamp(-128, 127)
    whole = torch.clamp(torch.round(x / scale) + zero, -128, 127) - zero
    return whole.to(torch.float64), scale.to(torch.float64)


def fused(
    x: Any,
    gain: Any,
    eps: float,
    weights: Any,
    scales: Any,
    biases: Any,
    group: int,
    weight_sums: Any,
    least: float | None,
    residual: Any,
    gated: bool,
) -> Any:
    if gain is not None:
        x = x * gain * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
    whole, scale = steps(x, least)
    pairs = zip(weights, scales, strict=True)
    outs = [whole @ matrix_q4(w, s, group, x.shape[-1]).T * scale for w, s in pairs]
    outs = [out + bias[: out.shape[-1]] for out, bias in zip(outs, biases, strict=True)] if biases else outs
    if gated:
        outs = [torch.nn.functional.silu(outs[0]) * outs[1]]
    return outs if residual is None else [outs[0].reshape(residual.shape) + residual]
