"""Norms of rows."""

from __future__ import annotations

import torch

from pteron.reference.table import reference


@reference("et_vk.rms_norm.default")
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight
