"""Training: cross entropy with its gradient, gradients of layers, AdamW, and requantised 4-bit weights."""

from __future__ import annotations

from typing import Any

import torch

from pteron.reference.table import reference


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
