"""Shapes at the edges: of rank 0 and rank 8, without elements, of more workgroups than an axis takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from arguments import tensor
from check import check_op, each
from live_cases import BINARY, COMPARISONS, MOVED, UNARY

from pteron.ops import Target

Shape = tuple[int, ...]
SCALAR: Shape = ()
EIGHT: Shape = (2, 1, 3, 1, 2, 1, 2, 3)
NONE: Shape = (3, 0, 2)
SHAPES = pytest.mark.parametrize("shape", [SCALAR, EIGHT, NONE], ids=["rank 0", "rank 8", "no elements"])
ONE = [*(f"{name}.default" for name in UNARY if name != "bitwise_not"), "sqrt.default", "rsqrt.default"]
TWO = [*(name for name in BINARY if "bitwise" not in name), *(f"{name}.Tensor" for name in COMPARISONS)]
TYPES = pytest.mark.parametrize("dtype", ["f32", "bool", *MOVED])


def moved(name: str, *arguments: Any, dtype: str) -> None:
    options: dict[str, Any] = {"out": dtype, "tolerance": 1e-5} if dtype in MOVED else {}
    check_op(name, *arguments, dtype=dtype, **options)


@SHAPES
@pytest.mark.parametrize("name", ONE)
def test_one_tensor(name: str, shape: Shape) -> None:
    check_op(f"aten.{name}", tensor(*shape, low=0.1))


@SHAPES
@pytest.mark.parametrize("name", TWO)
def test_two_tensors(name: str, shape: Shape) -> None:
    check_op(f"aten.{name}", tensor(*shape), tensor(*shape))
    if shape:  # both broadcast, each along the dims that the other has
        left = (size if d % 2 else 1 for d, size in enumerate(shape))
        right = (1 if d % 2 else size for d, size in enumerate(shape))
        check_op(f"aten.{name}", tensor(*left), tensor(*right))


@TYPES
@SHAPES
def test_elements_that_move(shape: Shape, dtype: str) -> None:
    rank = len(shape)
    x = tensor(*shape)
    moved("aten.permute_copy.default", x, [d - rank for d in reversed(range(rank))], dtype=dtype)
    moved("aten.view_copy.default", x, [-1] if 0 not in shape else [5, 0], dtype=dtype)
    moved("aten.flip.default", x, list(range(0, rank, 2)), dtype=dtype)
    moved("aten.expand_copy.default", x, [size if size != 1 else 5 for size in shape], False, dtype=dtype)
    moved("aten.squeeze_copy.dims", x, [d for d in range(rank) if shape[d] == 1], dtype=dtype)
    if rank:
        moved("aten.cat.default", [x, tensor(*shape)], -1, dtype=dtype)
        moved("aten.select_copy.int", x, -rank, -1, dtype=dtype)
        moved("aten.slice_copy.Tensor", x, -1, 0, 1, 1, dtype=dtype)
        moved("aten.constant_pad_nd.default", x, [1, 2] * rank, 1, dtype=dtype)


@each("keepdim", [True, False])
@each("dim", [[0, 2, 4, 6], [-1, -3, -5, -7], [0, 2, 5, 7], [3], []])
@each("name", ["sum.dim_IntList", "amax.default"])
def test_reductions_at_rank_eight(name: str, dim: list[int], keepdim: bool, target: Target) -> None:
    rest = (None,) if name == "sum.dim_IntList" else ()
    check_op(f"aten.{name}", tensor(2, 3, 2, 3, 1, 2, 3, 2), dim, keepdim, *rest, target=target)


@each("name", ["sum.dim_IntList", "mean.dim", "amax.default", "amin.default"])
def test_reductions_of_a_scalar(name: str, target: Target) -> None:
    rest = (None,) if name in ("sum.dim_IntList", "mean.dim") else ()
    for dim in ([], [0], [-1]):
        check_op(f"aten.{name}", tensor(), dim, False, *rest, target=target)


@each("name", ["argmax", "argmin"])
def test_indices_at_rank_eight_and_zero(name: str, target: Target) -> None:
    check_op(f"aten.{name}.default", tensor(2, 3, 2, 3, 1, 2, 3, 2), -7, False, target=target)
    check_op(f"aten.{name}.default", tensor(), 0, False, target=target)


def test_more_workgroups_than_an_axis_takes(target: Target) -> None:
    """65,535 of them, each of 64 elements; and of rows, where an axis takes fewer."""
    check_op("aten.add.Tensor", tensor(65_536 * 64 + 1), tensor(1), 1, target=target)
    narrow = replace(target, workgroups_max=37)  # fewer than the rows need, and 37² enough
    check_op("aten._softmax.default", tensor(1009, 3), -1, False, target=narrow)
    check_op("aten.sum.dim_IntList", tensor(1009, 3), [1], False, None, target=narrow)
    check_op("aten.argmax.default", tensor(1009, 3), 1, False, target=narrow)
