"""Planes: convolutions with bounds, resampling."""

from __future__ import annotations

from typing import Any

import torch

from pteron.reference.table import reference


@reference("et_vk.conv_with_clamp.default")
def clamped_convolution(*arguments: Any) -> torch.Tensor:
    *convolution, low, high = arguments
    result: torch.Tensor = torch.ops.aten.convolution.default(*convolution)
    return result if low is None and high is None else torch.clamp(result, low, high)


@reference("aten.upsample_nearest2d.vec")
def nearest(x: torch.Tensor, size: Any, factors: Any) -> torch.Tensor:
    """Which element is the nearest is decided in float32."""
    result: torch.Tensor = torch.ops.aten.upsample_nearest2d.vec(x.float(), size, factors)
    return result.double()


@reference("aten.grid_sampler_2d.default")
def sampled(x: torch.Tensor, grid: torch.Tensor, mode: int, padding: int, align: bool) -> torch.Tensor:
    """The nearest element is decided in float32, and all else at full width."""
    if mode == 1:
        x, grid = x.float(), grid.float()
    result: torch.Tensor = torch.ops.aten.grid_sampler_2d.default(x, grid, mode, padding, align)
    return result.double()


@reference("et_vk.grid_priors.default")
def grid_priors(x: torch.Tensor, stride: int, offset: float) -> torch.Tensor:
    """The place of every pixel, column before row."""
    rows, columns = torch.meshgrid(torch.arange(x.shape[-2]), torch.arange(x.shape[-1]), indexing="ij")
    return (torch.stack([columns.reshape(-1), rows.reshape(-1)], -1).double() + offset) * stride
