"""Pools to a given size: every number of dims, sizes that divide and do not, live sizes."""

from __future__ import annotations

import math

import pytest
from arguments import tensor
from check import check_op, floats, refuse_op

SIZES: list[tuple[int, ...]] = [(1, 1), (3, 5), (7, 11), (9, 4), (2, 13)]


@pytest.mark.long(every=2)
@floats
def test_averages(dtype: str) -> None:
    for size in (1, 3, 11, 17):
        check_op("aten.adaptive_avg_pool1d.default", tensor("S", 3, 11), [size], dtype=dtype)
    for sizes in SIZES:
        check_op("aten._adaptive_avg_pool2d.default", tensor("T", 3, 7, 11), [*sizes], dtype=dtype)
    for sizes in ((1, 1, 1), (2, 3, 4), (5, 9, 1)):
        check_op("aten._adaptive_avg_pool3d.default", tensor("T", 2, 5, 7, 6), [*sizes], dtype=dtype)
    check_op("aten._adaptive_avg_pool2d.default", tensor(3, "S", "T"), [3, 2], dtype=dtype)


@pytest.mark.long(every=2)
@floats
def test_largest(dtype: str) -> None:
    for sizes in SIZES:
        check_op("aten.adaptive_max_pool2d.default", tensor("T", 3, 7, 11), [*sizes], dtype=dtype)
    for sizes in ((1, 1, 1), (2, 3, 4), (5, 9, 1)):
        check_op("aten.adaptive_max_pool3d.default", tensor("T", 2, 5, 7, 6), [*sizes], dtype=dtype)
    check_op("aten.adaptive_max_pool2d.default", tensor(3, "S", "T"), [3, 2], dtype=dtype)


def test_equal_elements_and_nans() -> None:
    ties = tensor(1, 6, 9, low=0, high=2, dtype="i64").draw(
        {}, "f32", __import__("numpy").random.default_rng(0)
    )
    check_op("aten.adaptive_max_pool2d.default", tensor(values=ties.astype("float32")), [2, 4])
    edges = [[[math.nan, 1.0, -math.inf, -math.inf], [2.0, math.nan, -math.inf, -math.inf]]]
    check_op("aten.adaptive_max_pool2d.default", tensor(values=edges), [1, 2])


@pytest.mark.parametrize("name", ["_adaptive_avg_pool2d", "adaptive_max_pool2d"])
def test_refused(name: str) -> None:
    outputs = [(2, 2, 2)] * (2 if "max" in name else 1)
    refuse_op(f"aten.{name}.default", tensor(7, 5), [2, 2], match="takes 3 or 4 dims", out=outputs)
    refuse_op(f"aten.{name}.default", tensor(2, 7, 5), [-2, 2], match="not be negative", out=outputs)
