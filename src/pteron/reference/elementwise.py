"""Live integers, reductions, norms, copies, filled tensors and resampling."""

from __future__ import annotations

import operator
from typing import Any

import torch

from pteron.reference.table import REFERENCES, reference


def _dims(x: torch.Tensor, dims: Any) -> list[int]:
    return list(range(x.ndim)) if dims is None else list(dims)


def _filled(like: Any, value: float) -> torch.Tensor:
    """A tensor of one value, in the shape of a tensor or in the sizes given."""
    shape = like.shape if isinstance(like, torch.Tensor) else tuple(like)
    return torch.full(shape, value, dtype=torch.float64)


REFERENCES.update(
    {
        name: getattr(operator, name)
        for name in ("add", "sub", "mul", "floordiv", "lt", "gt", "ge", "le", "eq")
    }
)
REFERENCES.update(
    {
        "sym_size.int": lambda x, dim: int(x.shape[dim]),
        "et_vk.select_as_symint.default": lambda x, dim, index: int(x.select(dim, index).reshape(())),
        "aten.sum.dim_IntList": lambda x, dims, keepdim, _: torch.sum(x, _dims(x, dims), keepdim),
        "aten.mean.dim": lambda x, dims, keepdim, _: torch.mean(x, _dims(x, dims), keepdim),
        "aten._softmax.default": lambda x, dim, _: torch.softmax(x, dim),
        "aten._log_softmax.default": lambda x, dim, _: torch.log_softmax(x, dim),
        "aten.copy.default": lambda _, source, __: source,
        "aten.expand_copy.default": lambda x, size, _: x.expand(*size),
        "aten.permute.default": lambda x, dims: x.permute(*dims),
        "aten.permute_copy.default": lambda x, dims: x.permute(*dims),
        "aten.full.default": lambda size, value, *_: _filled(size, value),
        "aten.full_like.default": lambda x, value, *_: _filled(x, value),
        "aten.ones.default": lambda size, *_: _filled(size, 1),
        "aten.ones_like.default": lambda x, *_: _filled(x, 1),
        "aten.zeros.default": lambda size, *_: _filled(size, 0),
        "aten.zeros_like.default": lambda x, *_: _filled(x, 0),
        "aten.scalar_tensor.default": lambda value, *_: torch.tensor(value, dtype=torch.float64),
        "aten.arange.start_step": lambda start, end, step, *_: torch.arange(start, end, step),
        "aten.embedding.default": lambda table, indices, *_: table[indices],
    }
)


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


@reference("et_vk.rms_norm.default")
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


@reference("aten.upsample_nearest2d.vec")
def nearest(x: torch.Tensor, size: Any, factors: Any) -> torch.Tensor:
    """Which element is the nearest is decided in float32."""
    result: torch.Tensor = torch.ops.aten.upsample_nearest2d.vec(x.float(), size, factors)
    return result.double()


@reference("aten.grid_sampler_2d.default")
def sampled(x: torch.Tensor, grid: torch.Tensor, mode: int, padding: int, align: bool) -> torch.Tensor:
    """The nearest element is decided in float32; everything else is computed in float64."""
    if mode == 1:
        x, grid = x.float(), grid.float()
    result: torch.Tensor = torch.ops.aten.grid_sampler_2d.default(x, grid, mode, padding, align)
    return result.double()


@reference("et_vk.grid_priors.default")
def grid_priors(x: torch.Tensor, stride: int, offset: float) -> torch.Tensor:
    """The position of every pixel, column before row."""
    rows, columns = torch.meshgrid(torch.arange(x.shape[-2]), torch.arange(x.shape[-1]), indexing="ij")
    return (torch.stack([columns.reshape(-1), rows.reshape(-1)], -1).double() + offset) * stride
