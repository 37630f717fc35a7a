"""Live integers, reductions, softmax and RMS norm."""

from __future__ import annotations

import operator
from typing import Any

import torch

from pteron.reference.table import REFERENCES, reference

for _name in ("add", "sub", "mul", "floordiv", "lt", "gt", "ge", "le", "eq"):
    REFERENCES[_name] = getattr(operator, _name)


@reference("sym_size.int")
def size(x: torch.Tensor, dim: int) -> int:
    return int(x.shape[dim])


@reference("et_vk.select_as_symint.default")
def element(x: torch.Tensor, dim: int, index: int) -> int:
    return int(x.select(dim, index).reshape(()))


@reference("aten.sum.dim_IntList")
def summed(x: torch.Tensor, dims: Any, keepdim: bool, _: Any) -> torch.Tensor:
    return torch.sum(x, list(range(x.ndim)) if dims is None else list(dims), keepdim)


@reference("aten.mean.dim")
def averaged(x: torch.Tensor, dims: Any, keepdim: bool, _: Any) -> torch.Tensor:
    return torch.mean(x, list(range(x.ndim)) if dims is None else list(dims), keepdim)


@reference("aten._softmax.default")
def softmax(x: torch.Tensor, dim: int, _: Any) -> torch.Tensor:
    return torch.softmax(x, dim)


@reference("aten._log_softmax.default")
def log_softmax(x: torch.Tensor, dim: int, _: Any) -> torch.Tensor:
    return torch.log_softmax(x, dim)


@reference("et_vk.rms_norm.default")
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight
