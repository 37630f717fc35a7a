"""Running sums, sorted values, and their order: every dim, long rows, NaNs, equal values, live shapes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from arguments import tensor
from check import NOTHING, check_op, each_integer_and_float, floats, refuse_op

from pteron.ops import Target

NAN, INF = math.nan, math.inf


@each_integer_and_float
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_cumsum(dim: int, dtype: str, target: Target) -> None:
    check_op("aten.cumsum.default", tensor("S", 5, "T"), dim, None, dtype=dtype, target=target)


def test_cumsum_of_booleans(target: Target) -> None:
    check_op("aten.cumsum.default", tensor("S", "T", dtype="bool"), 1, None, out="i64", target=target)


def test_cumprod(target: Target) -> None:
    check_op("aten.cumprod.default", tensor("S", 7, "T", low=0.5, high=1.5), 1, None, target=target)


@pytest.mark.parametrize("length", [63, 4097, 70_001])
def test_long_rows(length: int, target: Target) -> None:
    values = torch.rand(2, length, dtype=torch.float32).numpy()
    between = torch.rand(2, length, 3, dtype=torch.float32).numpy()
    check_op("aten.cumsum.default", tensor(values=between), 1, None, target=target)
    check_op("aten.cumsum.default", tensor(values=values), 1, None, target=target)
    check_op("aten.cumsum.default", tensor(values=values.T), 0, None, target=target)


def test_scans_of_nothing() -> None:
    check_op("aten.cumsum.default", tensor("S", "T"), 1, None, live=NOTHING)
    check_op("aten.cumsum.default", tensor(), 0, None)


def _stable(x: torch.Tensor, dim: int, descending: bool) -> Any:
    return torch.sort(x, dim=dim, descending=descending, stable=True)


@each_integer_and_float
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("descending", [False, True])
def test_sort(dim: int, descending: bool, dtype: str) -> None:
    check_op("aten.sort.default", tensor("S", 5, "T"), dim, descending, oracle=_stable, dtype=dtype)


@pytest.mark.parametrize("descending", [False, True])
def test_sort_edges(descending: bool) -> None:
    values = [0.0, NAN, 1.0, -INF, INF, 1.0, NAN, -0.0, -1.0]
    check_op("aten.sort.default", tensor(values=values), 0, descending, oracle=_stable)
    check_op("aten.sort.default", tensor(), -1, descending, oracle=_stable)
    check_op("aten.sort.default", tensor("S", "T"), 1, descending, oracle=_stable, live=NOTHING)


@pytest.mark.parametrize("length", [512, 513, 4099])
def test_sort_of_long_rows(length: int) -> None:
    values = torch.randint(-50, 50, (3, length)).numpy()
    between = torch.randint(-50, 50, (2, length, 3)).numpy()
    check_op("aten.sort.default", tensor(values=between), 1, False, oracle=_stable, dtype="i32")
    check_op("aten.sort.default", tensor(values=values), 1, False, oracle=_stable, dtype="i32")
    check_op("aten.sort.default", tensor(values=values.T.copy()), 0, True, oracle=_stable, dtype="f32")


@pytest.mark.parametrize("largest", [False, True])
def test_topk(largest: bool) -> None:
    def expected(x: torch.Tensor, k: int, dim: int, largest: bool, sorted: bool) -> Any:
        values, indices = torch.sort(x, dim=dim, descending=largest, stable=True)
        return values.narrow(dim, 0, k), indices.narrow(dim, 0, k)

    check_op("aten.topk.default", tensor("S", 9, "T"), 3, 1, largest, True, oracle=expected)
    check_op("aten.topk.default", tensor(2, 3001), 50, -1, largest, True, oracle=expected)
    check_op("aten.topk.default", tensor(2, 5), 0, -1, largest, True, oracle=expected)


@each_integer_and_float
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_running_extremes(name: str, dtype: str) -> None:
    for dim in (0, 1, -1):
        check_op(f"aten.{name}.default", tensor("S", 5, "T", low=-3, high=3), dim, dtype=dtype)
    check_op(f"aten.{name}.default", tensor(), 0, dtype=dtype)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_running_extremes_of_edges(name: str, target: Target) -> None:
    edges = [[1.0, -math.inf, 3.0, 3.0, math.inf, 2.0], [0.5, math.nan, 1.0, math.nan, -1.0, math.inf]]
    check_op(f"aten.{name}.default", tensor(values=edges), 1, target=target)
    check_op(f"aten.{name}.default", tensor(2, 9001), 1, target=target)


@floats
def test_logcumsumexp(dtype: str) -> None:
    check_op("aten.logcumsumexp.default", tensor("S", 5, "T"), 1, dtype=dtype)
    edges = [[-math.inf, -math.inf, 1.0, 90.0, -90.0], [math.inf, -math.inf, 2.0, math.nan, 0.0]]
    check_op("aten.logcumsumexp.default", tensor(values=edges), 1, dtype=dtype)
    check_op("aten.logcumsumexp.default", tensor(2, 9001), -1, dtype=dtype, tolerance=1e-3)


def test_logcumsumexp_of_small_terms() -> None:
    """Relative: exp(-14) is a few units in the last place of 1, and all of the logarithm of 1 + exp(-14)."""
    values = [[0.0, -10.0], [0.0, -14.0], [0.0, -20.0]]
    check_op("aten.logcumsumexp.default", tensor(values=values), -1, tolerance=2e-6, atol=0)


@each_integer_and_float
@pytest.mark.parametrize("right", [False, True])
def test_searchsorted(right: bool, dtype: str) -> None:
    values = tensor("S", 3, "T", low=-9, high=9)
    for length in (1, 2, 31, 600):
        row = torch.randint(-9, 9, (length,)).sort().values.numpy()
        check_op(
            "aten.searchsorted.Tensor", tensor(values=row), values, False, right, None, None, dtype=dtype
        )
    rows = torch.randint(-9, 9, (4, 3, 13)).sort(-1).values.numpy()
    args = tensor(values=rows), tensor(4, 3, "T", low=-9, high=9), False, False, "right" if right else "left"
    check_op("aten.searchsorted.Tensor", *args, None, dtype=dtype, oracle=_searched)
    refuse_op(
        "aten.searchsorted.Tensor", tensor(2, 3), tensor(4, 3), False, right, None, None, match="all dims"
    )


def _searched(rows: Any, values: Any, out_int32: bool, right: bool, side: str, sorter: Any) -> Any:
    return torch.searchsorted(rows, values, right=side == "right")


def test_searchsorted_of_nans() -> None:
    row, values = [-math.inf, 1.0, 1.0, 2.0, math.nan], [math.nan, -math.inf, math.inf, 1.0, 2.0, 3.0]
    for right in (False, True):
        arguments = tensor(values=row), tensor(values=values), False, right, None, None
        check_op("aten.searchsorted.Tensor", *arguments)
