"""Elements moved or converted, tensors filled with numbers, and resampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pteron.reference.table import reference


@reference(
    "aten._to_copy.default",
    "aten.alias_copy.default",
    "aten.clone.default",
    "dim_order_ops._clone_dim_order.default",
    "dim_order_ops._to_dim_order_copy.default",
    "et_vk.prepack.default",
)
def same(x: torch.Tensor, *_: Any) -> torch.Tensor:
    """The same elements; the caller converts them to the output's type."""
    return x


@reference("aten.copy.default")
def copied(_: Any, source: torch.Tensor, __: Any) -> torch.Tensor:
    return source


@reference("aten.expand_copy.default")
def expanded(x: torch.Tensor, size: Sequence[int], _: Any) -> torch.Tensor:
    return x.expand(*size)


@reference("aten.permute.default", "aten.permute_copy.default")
def permuted(x: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    return x.permute(*dims)


@reference("aten.full.default")
def filled(size: Sequence[int], value: float, *_: Any) -> torch.Tensor:
    return torch.full(tuple(size), value, dtype=torch.float64)


@reference("aten.full_like.default")
def filled_alike(x: torch.Tensor, value: float, *_: Any) -> torch.Tensor:
    return torch.full(x.shape, value, dtype=torch.float64)


@reference("aten.ones.default", "aten.ones_like.default")
def ones(like: Any, *_: Any) -> torch.Tensor:
    return torch.ones(like.shape if isinstance(like, torch.Tensor) else tuple(like), dtype=torch.float64)


@reference("aten.zeros.default", "aten.zeros_like.default")
def zeros(like: Any, *_: Any) -> torch.Tensor:
    return torch.zeros(like.shape if isinstance(like, torch.Tensor) else tuple(like), dtype=torch.float64)


@reference("aten.scalar_tensor.default")
def scalar(value: float, *_: Any) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


@reference("aten.arange.start_step")
def counted(start: float, end: float, step: float, *_: Any) -> torch.Tensor:
    return torch.arange(start, end, step)


@reference("aten.embedding.default")
def rows(table: torch.Tensor, indices: torch.Tensor, *_: Any) -> torch.Tensor:
    return table[indices]


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
