"""Picks by several indices, and writes at indices: shapes, broadcasts, duplicates, masks, live shapes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from arguments import tensor
from check import check_op, each_integer_and_float, every_dtype, floats, refuse_op


def index(*shape: int | str, size: int) -> Any:
    return tensor(*shape, dtype="i64", low=-size, high=size - 1)


@every_dtype
@pytest.mark.parametrize(
    "indices",
    [
        [index("T", size=5), index("T", size=4)],
        [index("T", 1, size=5), index(3, size=4)],
        [None, index(2, 3, size=4), index(3, size=6)],
        [index(2, size=5), None, index(2, size=6)],
        [index(size=5), index(size=4), index("T", size=6)],
        [index("T", size=5)],
    ],
)
def test_several_indices(indices: list[Any], dtype: str) -> None:
    check_op("aten.index.Tensor", tensor(5, 4, 6), indices, dtype=dtype)


@pytest.mark.long(every=2)
@each_integer_and_float
@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put(accumulate: bool, dtype: str) -> None:
    x = tensor("S", 4, 6)
    rows = tensor(values=[3, 0, -2], dtype="i64")
    columns = tensor(values=[5, 0, 1], dtype="i64")
    put = "aten.index_put.default"
    check_op(put, x, [None, rows], tensor("S", 3, 6), accumulate, dtype=dtype)
    check_op(put, x, [None, rows, columns], tensor("S", 3), accumulate, dtype=dtype)
    check_op(put, x, [None, rows, columns], tensor(), accumulate, dtype=dtype)
    check_op(put, tensor(5, 4, 6), [rows, None, columns], tensor(3, 4), accumulate, dtype=dtype)
    grid = tensor(values=[[1], [3]], dtype="i64"), tensor(values=[[0, 4, 2]], dtype="i64")
    check_op(put, x, [None, *grid], tensor(2, 1), accumulate, dtype=dtype)


def test_sums_at_equal_indices() -> None:
    indices = tensor(40, dtype="i64", low=0, high=3)
    check_op("aten.index_put.default", tensor(4, 3), [indices], tensor(40, 3), True)
    many = tensor(9000, dtype="i64", low=0, high=3)
    check_op("aten.index_put.default", tensor(4), [many], tensor(9000), True, tolerance=1e-4)


@every_dtype
def test_masks(dtype: str) -> None:
    mask = tensor("S", 4, dtype="bool")
    check_op("aten.index_put.default", tensor("S", 4, 3), [mask], tensor(values=[1]), False, dtype=dtype)
    refuse_op(
        "aten.index_put.default", tensor(5), [tensor(5, dtype="bool")], tensor(2), False, match="one value"
    )


@each_integer_and_float
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_scatter(dim: int, dtype: str) -> None:
    sizes = (5, 4, 6)
    unique = torch.argsort(torch.rand(3, 3, 3), dim).numpy()
    indices = tensor(values=unique, dtype="i64")
    check_op("aten.scatter.src", tensor(*sizes), dim, indices, tensor(4, 3, 5), dtype=dtype)
    check_op("aten.scatter.value", tensor(*sizes), dim, indices, 2, dtype=dtype)
    many = tensor(3, 4, 6, dtype="i64", low=0, high=sizes[dim] - 1)
    check_op(
        "aten.scatter_add.default",
        tensor(*sizes),
        dim,
        many if dim else indices,
        tensor(3, 4, 6),
        dtype=dtype,
    )


@floats
@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin"])
def test_scatter_reduce(reduce: str, dtype: str) -> None:
    indices = tensor("S", 9, dtype="i64", low=0, high=3)
    values = tensor("S", 9, low=0.5, high=1.5)
    check_op("aten.scatter_reduce.two", tensor("S", 4), 1, indices, values, reduce, True, dtype=dtype)


@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_extremes_at_equal_indices_keep_nan(reduce: str) -> None:
    """Wherever it stands: in the tensor, first or last among the values."""
    x = tensor(values=[1.0, math.nan, 1.0, 1.0])
    indices = tensor(values=[0, 1, 2, 2, 3, 3], dtype="i64")
    values = tensor(values=[2.0, 0.0, math.nan, 3.0, -1.0, math.nan])
    check_op("aten.scatter_reduce.two", x, 0, indices, values, reduce, True)


@every_dtype
def test_written_parts(dtype: str) -> None:
    check_op("aten.slice_scatter.default", tensor("S", 9), tensor("S", 3), 1, 1, 7, 2, dtype=dtype)
    check_op("aten.slice_scatter.default", tensor(9, "T"), tensor(9, "T"), 0, None, None, 1, dtype=dtype)
    check_op("aten.select_scatter.default", tensor("S", 4, 3), tensor("S", 3), 1, -2, dtype=dtype)


@every_dtype
def test_walks_by_strides(dtype: str) -> None:
    check_op("aten.as_strided_copy.default", tensor(5, 7), [3, 2, 2], [7, 1, 2], 4, dtype=dtype)
    for offset in (-2, 0, 3):
        check_op("aten.diagonal_copy.default", tensor(2, 5, "T"), offset, 1, 2, dtype=dtype)
    check_op("aten.diagonal_scatter.default", tensor("S", 5, 7), tensor("S", 4), -1, 1, 2, dtype=dtype)
    check_op("aten.diagonal_scatter.default", tensor(5, "S", 7), tensor("S", 3), 2, 2, 0, dtype=dtype)


@each_integer_and_float
def test_borders(dtype: str) -> None:
    check_op("aten.reflection_pad1d.default", tensor("S", 2, 5), [4, 1], dtype=dtype)
    check_op("aten.reflection_pad2d.default", tensor("S", 2, 3, 5), [4, 0, 2, 1], dtype=dtype)
    check_op("aten.replication_pad2d.default", tensor("S", 2, 3, 5), [7, 0, 2, 1], dtype=dtype)
    check_op("aten.replication_pad3d.default", tensor(1, 2, 3, 2, "T"), [1, 2, 0, 3, 2, 2], dtype=dtype)
