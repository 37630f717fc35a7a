"""Operators in terms of others that Pteron has: a table for `run_decompositions`, beside PyTorch's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def own_decompositions() -> dict[torch._ops.OpOverload, Callable[..., Any]]:
    import torch

    aten = torch.ops.aten
    return {
        aten._cdist_forward.default: _distances,
        aten._embedding_bag_forward_only.default: _embedding_bag,
        aten._embedding_bag.default: _embedding_bag,
        aten._native_batch_norm_legit.no_stats: _norm_of_batch,
        aten._pdist_forward.default: _own_distances,
        aten._trilinear.default: _trilinear,
        aten._upsample_bicubic2d_aa.default: partial(_antialiased, _cubic),
        aten._upsample_bilinear2d_aa.default: partial(_antialiased, _linear),
        aten.addbmm.default: _addbmm,
        aten.bucketize.Tensor: _bucketize,
        aten.copy.default: _copy,
        aten.empty_permuted.default: _empty_permuted,
        aten.histc.default: _histogram,
        aten.index_reduce.default: _index_reduce,
        aten.kthvalue.default: _kth_value,
        aten.masked_scatter.default: _masked_scatter,
        aten.median.default: _median,
        aten.median.dim: _median_of_dim,
        aten.rrelu_with_noise_functional.default: _rrelu,
        aten.scalar_tensor.default: _scalar_tensor,
        aten.scatter.reduce: _scatter_values,
        aten.scatter.value_reduce: _scatter_value,
        aten.scatter_reduce.two: _scatter_reduce,
        aten.sort.stable: _stable_sort,
        aten.var_mean.correction: _variance_and_mean,
    }


def _copy(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    return src.to(self.dtype, copy=True).expand(self.shape)


def _empty_permuted(
    size: Sequence[int],
    physical_layout: Sequence[int],
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    **_: Any,
) -> Tensor:
    """Zeros: a delegate refuses uninitialised integers if they are beyond 32 bits."""
    import torch

    zeros = torch.zeros([size[dim] for dim in physical_layout], dtype=dtype, device=device)
    order = [physical_layout.index(dim) for dim in range(len(size))]
    return zeros if order == sorted(order) else zeros.permute(order)


def _scalar_tensor(s: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, **_: Any) -> Tensor:
    """ExecuTorch does not make an edge operator of scalar_tensor."""
    import torch

    return torch.full((), s, dtype=dtype or torch.get_default_dtype(), device=device)


def _variance_and_mean(
    self: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    dims = list(range(self.ndim)) if dim is None else dim
    return self.var(dims, correction=correction, keepdim=keepdim), self.mean(dims, keepdim=keepdim)


def _norm_of_batch(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """A batch norm by the batch's own statistics. Of one sample it is a norm of each channel."""
    import torch

    count, channels, *sizes = input.shape
    if count == 1:
        size = math.prod(sizes)
        out, mean, scale = torch.ops.aten.native_group_norm(
            input.contiguous(), weight, bias, 1, channels, size, channels, eps
        )
        return out, mean.reshape(-1), scale.reshape(-1)
    dims = [0, *range(2, input.ndim)]
    variance, mean = torch.var_mean(input, dims, correction=0, keepdim=True)
    scale = (variance + eps).rsqrt()
    shape = [1, channels, *(1 for _ in sizes)]
    out = (input - mean) * scale
    out = out if weight is None else out * weight.reshape(shape)
    out = out if bias is None else out + bias.reshape(shape)
    return out, mean.reshape(-1), scale.reshape(-1)


# Order -------------------------------------------------------------------------------------------


def _stable_sort(
    self: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor]:
    """Pteron's sort is stable."""
    import torch

    values, indices = torch.ops.aten.sort.default(self, dim, descending)
    return values, indices


def _kth_value(self: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    values, indices = (each.narrow(dim, k - 1, 1) if self.ndim else each for each in self.sort(dim))
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


def _median_of_dim(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The lower of two middle elements. A NaN is its own median: it is the last of the sorted elements."""
    import torch

    if not self.ndim:
        return self.clone(), torch.zeros((), dtype=torch.int64)
    values, indices = self.sort(dim)
    length = self.shape[dim]
    middle, last = ((length - 1) // 2), length - 1
    is_nan = values.narrow(dim, last, 1).isnan() if self.is_floating_point() else None
    picked = [each.narrow(dim, middle, 1) for each in (values, indices)]
    if is_nan is not None:
        first_nan = values.isnan().int().argmax(dim, keepdim=True)
        picked = [
            torch.where(is_nan, each.gather(dim, first_nan), kept)
            for each, kept in zip((values, indices), picked, strict=True)
        ]
    value, index = (each if keepdim else each.squeeze(dim) for each in picked)
    return value, index


def _median(self: Tensor) -> Tensor:
    return _median_of_dim(self.reshape(-1), 0)[0]


def _bucketize(self: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    import torch

    return torch.searchsorted(boundaries, self, out_int32=out_int32, right=right)


def _histogram(self: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    import torch

    x = self.reshape(-1)
    low: Any = min
    high: Any = max
    if min == max:
        low, high = x.min(), x.max()
        same = low == high
        low, high = torch.where(same, low - 1, low), torch.where(same, high + 1, high)
    places = ((x - low) * bins / (high - low)).floor().clamp(max=bins - 1)
    inside = (x >= low) & (x <= high)
    found = torch.where(inside, places, -1)
    return (found == torch.arange(bins, device=x.device)[:, None]).sum(1).to(self.dtype)


# Writes at indices -------------------------------------------------------------------------------


def _masked_scatter(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Elements of `source` in order where the mask is true: the number of true elements before each is its
    position in `source`."""
    import torch

    shape = torch.broadcast_shapes(self.shape, mask.shape)
    chosen = mask.expand(shape).reshape(-1)
    positions = (chosen.cumsum(0) - 1).clamp(0, source.numel() - 1)
    picked = source.reshape(-1).index_select(0, positions).reshape(shape)
    return torch.where(mask, picked, self)


_REDUCTIONS = {"add": "sum", "multiply": "prod"}


def _scatter_values(self: Tensor, dim: int, index: Tensor, src: Tensor, *, reduce: str) -> Tensor:
    return self.scatter_reduce(dim, index, src, _REDUCTIONS[reduce])


def _scatter_value(self: Tensor, dim: int, index: Tensor, value: float, *, reduce: str) -> Tensor:
    import torch

    values = torch.full_like(index, value, dtype=self.dtype)
    return self.scatter_reduce(dim, index, values, _REDUCTIONS[reduce])


def _scatter_reduce(
    self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    """Means, and reductions without the elements that are written over."""
    import torch

    if reduce != "mean" and include_self:
        return NotImplemented
    start = self
    if not include_self:
        start = self.scatter(dim, index, _neutral(self.dtype, reduce))
    if reduce != "mean":
        return start.scatter_reduce(dim, index, src, reduce)
    total = start.scatter_add(dim, index, src)
    count = torch.full_like(self, int(include_self)).scatter_add(dim, index, torch.ones_like(src))
    count = count.clamp(min=1)
    return total / count if self.is_floating_point() else total // count


def _neutral(dtype: torch.dtype, reduce: str) -> float:
    """What does not change a reduction."""
    import torch

    if reduce in ("sum", "mean", "prod"):
        return int(reduce == "prod")
    sign = -1 if reduce == "amax" else 1
    if dtype.is_floating_point:
        return sign * float("inf")
    limits = torch.iinfo(torch.int32 if dtype == torch.int64 else dtype)
    return int(limits.min if sign < 0 else limits.max)


def _index_reduce(
    self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    at = dim % max(self.ndim, 1)
    sizes = [-1 if d == at else 1 for d in range(source.ndim)]
    expanded = index.reshape(sizes).expand(source.shape)
    return self.scatter_reduce(dim, expanded, source, reduce, include_self=include_self)


# Products ----------------------------------------------------------------------------------------


def _distances(x1: Tensor, x2: Tensor, p: float, compute_mode: int | None) -> Any:
    """With one batch for both sets of points, which the operator takes."""
    import torch

    batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    if x1.shape[:-2] == x2.shape[:-2]:
        return NotImplemented
    left, right = (each.expand(*batch, *each.shape[-2:]) for each in (x1, x2))
    return torch.ops.aten._cdist_forward(left, right, p, compute_mode)


def _own_distances(self: Tensor, p: float = 2) -> Tensor:
    import torch

    first, second = torch.triu_indices(self.shape[0], self.shape[0], 1, device=self.device).unbind()
    return torch.linalg.vector_norm(self[first] - self[second], p, dim=1)


def _addbmm(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    import torch

    return beta * self + alpha * torch.bmm(batch1, batch2).sum(0)


def _trilinear(
    i1: Tensor,
    i2: Tensor,
    i3: Tensor,
    expand1: list[int],
    expand2: list[int],
    expand3: list[int],
    sumdim: list[int],
    unroll_dim: int = 1,
) -> Tensor:
    for dims, position in ((expand1, 0), (expand2, 1), (expand3, 2)):
        for dim in sorted(dims):
            i1, i2, i3 = (
                each.unsqueeze(dim) if index == position else each for index, each in enumerate((i1, i2, i3))
            )
    product = i1 * i2 * i3
    return product.sum(sumdim) if sumdim else product


def _rrelu(
    self: Tensor, noise: Tensor, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, *_: Any
) -> Any:
    import torch

    if training:
        return NotImplemented
    return torch.ops.aten.leaky_relu(self, (lower + upper) / 2), noise


def _embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows of `weight` by their bags, which begin at the offsets: summed (mode 0), averaged (1), or their
    maximum (2). An empty bag gives zeros."""
    import torch

    starts = offsets[:-1] if include_last_offset else offsets
    positions = torch.arange(indices.shape[0], dtype=offsets.dtype, device=offsets.device)
    bags = torch.searchsorted(starts, positions, right=True) - 1
    rows = torch.nn.functional.embedding(indices, weight)
    counted = (indices != padding_idx).to(weight.dtype)[:, None]
    shape = (starts.shape[0], weight.shape[1])
    counts = torch.zeros(shape[0], 1, dtype=weight.dtype, device=weight.device).index_add(0, bags, counted)
    if mode == 2:
        rows = torch.where(counted > 0, rows, float("-inf"))
        lowest = torch.full(shape, float("-inf"), dtype=weight.dtype, device=weight.device)
        most = lowest.scatter_reduce(0, bags[:, None].expand(rows.shape), rows, "amax")
        out = torch.where(counts > 0, most, 0.0)
    else:
        rows = rows * (counted if per_sample_weights is None else counted * per_sample_weights[:, None])
        out = torch.zeros(shape, dtype=weight.dtype, device=weight.device).index_add(0, bags, rows)
        out = out / counts.clamp(min=1) if mode == 1 else out
    return out, bags, counts.reshape(-1).to(indices.dtype), bags


# Resampling --------------------------------------------------------------------------------------


def _antialiased(
    weigh: Callable[[Tensor], Tensor],
    self: Tensor,
    output_size: list[int],
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Tensor:
    """Planes resized with a filter that widens where they shrink: a product with constants along each dim."""
    height, width = (
        _filter_matrix(weigh, size, out, align_corners, scale).to(self.dtype)
        for size, out, scale in zip(self.shape[-2:], output_size, (scales_h, scales_w), strict=True)
    )
    return height @ (self @ width.T)


def _filter_matrix(
    weigh: Callable[[Tensor], Tensor], size: int, out: int, align_corners: bool, factor: float | None
) -> Tensor:
    """The share of each of `size` elements in each of `out`."""
    import torch

    if align_corners:
        step = (size - 1) / (out - 1) if out > 1 else 0.0
    else:
        step = 1 / factor if factor else size / out
    centers = step * (torch.arange(out, dtype=torch.float64) + 0.5)
    apart = (torch.arange(size, dtype=torch.float64) + 0.5 - centers[:, None]).abs() / max(step, 1.0)
    shares = weigh(apart)
    return shares / shares.sum(1, keepdim=True)


def _linear(apart: Tensor) -> Tensor:
    return (1 - apart).clamp(min=0)


def _cubic(apart: Tensor) -> Tensor:
    """Cubic convolution with a = -0.5."""
    import torch

    near = (1.5 * apart - 2.5) * apart * apart + 1
    far = ((-0.5 * apart + 2.5) * apart - 4) * apart + 2
    return torch.where(apart < 1, near, torch.where(apart < 2, far, 0.0))
