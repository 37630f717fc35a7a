"""Products of groups of rows with a matrix per group, and distances of points."""

from __future__ import annotations

import math

import pytest
import torch
from arguments import tensor, weight
from check import check_op, floats, refuse_op

from pteron.ops import Target


def _grouped(a: torch.Tensor, b: torch.Tensor, ends: torch.Tensor, *_: object) -> torch.Tensor:
    groups = torch.bucketize(torch.arange(len(a)), ends, right=True)
    return torch.stack([row @ b[min(int(group), len(b) - 1)] for row, group in zip(a, groups, strict=True)])


@pytest.mark.long(every=2)
@floats
@pytest.mark.parametrize("ends", [[2, 2, 7, 11], [0, 0, 0, 11], [11, 11, 11, 11]])
def test_grouped_products(ends: list[int], dtype: str, target: Target) -> None:
    offsets = tensor(values=ends, dtype="i32")
    arguments = tensor("S", 13), tensor(4, 13, 17), offsets, None, None
    check_op("aten._grouped_mm.default", *arguments, oracle=_grouped, dtype=dtype, target=target)
    fallback = "transformers.grouped_mm_fallback.default"
    check_op(fallback, *arguments[:3], oracle=_grouped, dtype=dtype, target=target)


def test_deep_grouped_products(target: Target) -> None:
    offsets = tensor(values=[1, 5], dtype="i32")
    arguments = tensor(5, 9001), weight(2, 9001, 3), offsets, None, None
    check_op("aten._grouped_mm.default", *arguments, oracle=_grouped, target=target, tolerance=1e-4)


def test_refused() -> None:
    ends = tensor(values=[2, 4], dtype="i32")
    refuse_op("aten._grouped_mm.default", tensor(4, 3), tensor(2, 5, 3), ends, None, None, match="length")
    refuse_op(
        "aten._grouped_mm.default", tensor(4, 3), tensor(3, 5), ends, None, None, match="matrix per group"
    )


@floats
@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.5, math.inf])
def test_distances(p: float, dtype: str) -> None:
    check_op("aten._cdist_forward.default", tensor(2, "S", 7), tensor(2, 5, 7), p, 2, dtype=dtype)
    check_op("aten._cdist_forward.default", tensor("S", 1), tensor("T", 1), p, 2, dtype=dtype)


def test_far_points() -> None:
    check_op("aten._cdist_forward.default", tensor(5, 4096), tensor(3, 4096), 2.0, 2)
    refuse_op("aten._cdist_forward.default", tensor(5, 4097), tensor(3, 4097), 2.0, 2, match="at most 4096")
