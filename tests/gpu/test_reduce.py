"""Reductions: every dim and several, kept or not, over nothing, over NaNs, by lanes alone and together."""

from __future__ import annotations

import math

from arguments import tensor
from check import NOTHING, check_op, each, refuse_op

from pteron.ops import Target

SUMS = ("aten.sum.dim_IntList", "aten.mean.dim")
EXTREMES = ("aten.amax.default", "aten.amin.default")
INDICES = ("aten.argmax.default", "aten.argmin.default")
DIMS: list[list[int] | None] = [[0], [1], [-1], [0, 1], [2, 0], [-1, -3], [0, 1, 2], [], None]
NAN, INF = math.nan, math.inf


@each("name", SUMS)
@each("dim", DIMS)
@each("keepdim", [True, False])
def test_sums(name: str, dim: list[int] | None, keepdim: bool, target: Target) -> None:
    check_op(name, tensor("S", 5, "T"), dim, keepdim, None, target=target)


@each("name", EXTREMES)
@each("dim", [dim for dim in DIMS if dim is not None])
@each("keepdim", [True, False])
def test_extremes(name: str, dim: list[int], keepdim: bool, target: Target) -> None:
    check_op(name, tensor("S", 5, "T"), dim, keepdim, target=target)


@each("name", INDICES)
@each("dim", [0, 1, -1, None])
@each("keepdim", [True, False])
@each("out", ["i32", "i64"])
def test_indices(name: str, dim: int | None, keepdim: bool, out: str) -> None:
    check_op(name, tensor("S", 5, "T"), dim, keepdim, out=out)


@each("length", [1, 63, 64, 65, 257, 1009])
def test_long_rows(length: int, target: Target) -> None:
    check_op("aten.sum.dim_IntList", tensor("S", length), [1], False, None, target=target, tolerance=1e-4)
    check_op("aten.amax.default", tensor("S", length), [1], False, target=target)


def test_many_rows(target: Target) -> None:
    check_op("aten.mean.dim", tensor(4111, 37), [1], False, None, target=target)


def test_dims_far_apart(target: Target) -> None:
    check_op("aten.sum.dim_IntList", tensor(2, 3, "S", 2, 3, 2), [1, 3, 5], False, None, target=target)


@each("name", [*SUMS, *EXTREMES])
def test_a_scalar(name: str, target: Target) -> None:
    rest = (None,) if name in SUMS else ()
    check_op(name, tensor(), [0], False, *rest, target=target)
    check_op(name, tensor(), [], True, *rest, target=target)


def test_index_in_a_scalar() -> None:
    check_op("aten.argmax.default", tensor(), None, False)
    check_op("aten.argmax.default", tensor(), 0, False)


@each("name", [*SUMS, *EXTREMES])
def test_nan_and_infinity(name: str, target: Target) -> None:
    rows = (
        (1.0, NAN, 2.0),
        (NAN, 1.0, 2.0),
        (1.0, 2.0, NAN),
        (INF, 1.0, 2.0),
        (-INF, 1.0, 2.0),
        (INF, -INF, 0.0),
    )
    rest = (None,) if name in SUMS else ()
    check_op(name, tensor(values=rows), [1], False, *rest, target=target)


@each("name", INDICES)
def test_index_of_nan_and_of_equals(name: str) -> None:
    rows = (
        (1.0, NAN, 2.0, NAN),
        (NAN, 1.0, 2.0, 3.0),
        (5.0, 1.0, 5.0, 1.0),
        (INF, -INF, INF, -INF),
        (0.0, -0.0, 0.0, -0.0),
    )
    check_op(name, tensor(values=rows), 1, False)


@each("name", SUMS)
def test_no_elements(name: str, target: Target) -> None:
    check_op(name, tensor("S", 0), [1], True, None, target=target)
    check_op(name, tensor(0, 3), None, False, None, target=target)
    check_op(name, tensor(0, 3), [1], False, None, target=target)
    check_op(name, tensor("S", 3, "T"), [0], False, None, live=NOTHING, target=target)


@each("name", EXTREMES)
def test_no_rows(name: str, target: Target) -> None:
    check_op(name, tensor(0, 3), [1], False, target=target)


def test_integers_are_summed_exactly(target: Target) -> None:
    values = ((2**24, 1, 1), (2**30, -1, 3))
    arguments = (tensor(values=values), [1], False, None)
    check_op("aten.sum.dim_IntList", *arguments, dtype="i32", target=target)


def test_integers_are_compared_exactly(target: Target) -> None:
    values = ((2**24, 2**24 + 1, 2**24), (-(2**30), -(2**30) - 1, -(2**30) + 1))
    check_op("aten.amax.default", tensor(values=values), [1], False, dtype="i32", target=target)
    check_op("aten.amin.default", tensor(values=values), [1], False, dtype="i32", target=target)
    check_op("aten.argmax.default", tensor(values=values), 1, False, dtype="i32")


@each("name", EXTREMES)
def test_the_extremes_of_integers(name: str, target: Target) -> None:
    """The least has no negative."""
    values = ((-(2**31), 5), (2**31 - 1, -(2**31)), (-(2**31), -(2**31)))
    check_op(name, tensor(values=values), [1], False, dtype="i32", target=target)


def test_booleans_are_counted(target: Target) -> None:
    check_op("aten.sum.dim_IntList", tensor("S", 7), [1], False, None, dtype="bool", target=target)


def test_refusals() -> None:
    x = tensor(3, 0)
    refuse_op("aten.sum.dim_IntList", x, [2], False, None, match="dim 2 is out of range for rank 2")
    refuse_op("aten.sum.dim_IntList", x, [0, -2], False, None, match=r"\(0, -2\) name one dim twice")
    refuse_op("aten.amax.default", x, [1], False, out=((3,),), match=r"over no elements; got .*\[3, 0\]")
    refuse_op("aten.argmax.default", x, 1, False, out=((3,),), match=r"over no elements; got .*\[3, 0\]")
