"""Measured cases of operators that order, search and write by index, and of those that came with them."""

from __future__ import annotations

from typing import Any

import torch
from arguments import tensor
from measured_case import EITHER, Case, case


def _stable(x: torch.Tensor, dim: int, descending: bool) -> tuple[torch.Tensor, torch.Tensor]:
    values, indices = torch.sort(x, dim=dim, descending=descending, stable=True)
    return values, indices


def _grouped(a: torch.Tensor, b: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    groups = torch.bucketize(torch.arange(len(a)), ends, right=True)
    return torch.stack([row @ b[min(int(group), len(b) - 1)] for row, group in zip(a, groups, strict=True)])


def picks(*shape: int | str, size: int) -> tuple[Any, ...]:
    return (tensor(*shape, dtype="i64", low=0, high=size - 1),)


SORTED = [-2.5, -1.0, -1.0, 0.0, 0.5, 0.75, 2.0]
ENDS = tensor(values=[2, 2, 7, 11], dtype="i32")
ORDER_CASES: list[Case] = [
    case("aten.cumsum.default", tensor("S", 5, 7), 1, None, kernels="scan", on=EITHER),
    case(
        *("aten.cumsum.default", tensor(2, 9001, low=0, high=1), 1, None),
        kernels="part_totals scan_totals scan",
        on=("software",),
        tolerance=1e-4,
    ),
    case("aten.cummax.default", tensor("S", 5, 7), 1, kernels="scan last_reached"),
    case("aten.sort.default", tensor("S", 31), 1, False, kernels="sort_ranks sort_take", oracle=_stable),
    case("aten.sort.default", tensor("S", 600), 1, True, kernels="sort_step sort_take", oracle=_stable),
    case(
        *("aten.searchsorted.Tensor", tensor(values=SORTED), tensor("S", 5), False, True, None, None),
        kernels="searchsorted",
    ),
    case(
        *("aten.index.Tensor", tensor("S", 5, 6), [None, *picks(4, size=5), *picks(4, size=6)]),
        kernels="offsets gather_offsets",
    ),
    case(
        *("aten.scatter_add.default", tensor("S", 5), 1, *picks("S", 9, size=5), tensor("S", 9)),
        kernels="scatter",
    ),
    case("aten.reflection_pad2d.default", tensor("S", 3, 5, 7), [2, 1, 3, 4], kernels="border"),
    case("aten._adaptive_avg_pool2d.default", tensor("S", 3, 7, 11), [3, 5], kernels="adaptive_pool"),
    case("aten.adaptive_max_pool2d.default", tensor("S", 3, 7, 11), [3, 13], kernels="adaptive_pool"),
    case("aten._cdist_forward.default", tensor(3, "S", 7), tensor(3, 5, 7), 3.5, 2, kernels="distances"),
    case(
        *("aten.grid_sampler_3d.default", tensor("S", 2, 5, 7, 6), tensor("S", 3, 4, 2, 3), 0, 2, False),
        kernels="grid_sampler_3d",
    ),
    case(
        *("transformers.grouped_mm_fallback.default", tensor(11, 13), tensor(4, 13, 17), ENDS),
        kernels="searchsorted matmul_thread",
        oracle=_grouped,
    ),
]
