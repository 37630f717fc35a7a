"""Elements that change places or types: copies, views, and what fills a tensor."""

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
    """The same elements; the output's type says what becomes of them."""
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
