"""Reductions of Core ATen that only Pteron's partitioner delegates."""

from __future__ import annotations

import math

import numpy as np
import pytest
from arguments import tensor
from check import NOTHING, check_op, each, each_integer_and_float, every_dtype, floats

from pteron.ops import Target


@every_dtype
def test_any(dtype: str, target: Target) -> None:
    x = tensor("S", 5, "T", low=0, high=0.9)
    check_op("aten.any.dim", x, 1, False, dtype=dtype, target=target)
    check_op("aten.any.dims", x, [0, 2], True, dtype=dtype, target=target)
    check_op("aten.any.default", x, dtype=dtype, target=target)
    check_op("aten.any.dim", tensor("S", "T"), 1, False, live=NOTHING, dtype=dtype, target=target)


@each_integer_and_float
def test_prod(dtype: str, target: Target) -> None:
    x = tensor("S", 5, "T", low=-1.5, high=1.5)
    for dim in (0, 1, 2):
        check_op("aten.prod.dim_int", x, dim, False, None, dtype=dtype, target=target)
    check_op("aten.prod.default", tensor(3, 7, low=0.8, high=1.2), None, target=target)


def test_product_of_a_long_row(target: Target) -> None:
    check_op("aten.prod.default", tensor(3001, low=0.999, high=1.001), None, target=target)


@pytest.mark.long(every=2)
@floats
def test_var(dtype: str, target: Target) -> None:
    for correction in (None, 0, 1, 12):  # with more than there are elements it is infinite
        x = tensor(5, "T", 9, low=10, high=13)
        check_op("aten.var.correction", x, [2], correction, False, dtype=dtype, target=target)
    check_op("aten.var.correction", tensor("S", 5, 7), [0, 2], 0, True, dtype=dtype, target=target)
    check_op("aten.var.dim", tensor(3, 5, "T"), None, False, False, dtype=dtype, target=target)


@each("length", [9, 5000, 70001])
def test_var_of_large_numbers_close_together(length: int, target: Target) -> None:
    """No f32 is the mean of 2^24 and 2^24 + 2, and none near it is closer than 1."""
    row = 2.0**24 + np.arange(length) % 2 * 2
    check_op("aten.var.correction", tensor(values=row), [0], 1, False, target=target)


@floats
def test_of_all(dtype: str, target: Target) -> None:
    for name in ("aten.sum.default", "aten.mean.default"):
        check_op(name, tensor("S", 5, "T"), None, dtype=dtype, target=target)


@pytest.mark.long(every=2)
@each_integer_and_float
@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_with_index(name: str, dtype: str, target: Target) -> None:
    for dim, keepdim in ((0, False), (1, True), (-1, False)):
        x = tensor("S", 5, "T", low=-9, high=9)
        check_op(f"aten.{name}.dim", x, dim, keepdim, dtype=dtype, target=target)
    if dtype == "f32":
        values = [[1.0, math.nan, 2.0], [math.inf, 3.0, -math.inf]]
        check_op(f"aten.{name}.dim", tensor(values=values), 1, False, target=target)


def test_many_separate_dims(target: Target) -> None:
    x = tensor(2, 3, 2, 3, 2, 3, 2, "T")
    for name in ("aten.sum.dim_IntList", "aten.mean.dim"):
        check_op(name, x, [0, 2, 4, 6], False, None, target=target)
    check_op("aten.amax.default", tensor(2, 3, 2, 3, 2, 3, 2, 3, 2), [1, 3, 5, 7], False, target=target)


@each_integer_and_float
def test_extremes_of_all(dtype: str, target: Target) -> None:
    for name in ("max", "min"):
        check_op(f"aten.{name}.default", tensor("S", 5, "T"), dtype=dtype, target=target)
