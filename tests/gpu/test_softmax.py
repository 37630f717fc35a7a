"""Softmax and its logarithm, along every dim, by lanes alone and together."""

from __future__ import annotations

import math

from arguments import tensor
from check import NOTHING, check_op, each, each_float, refuse_op

from pteron.ops import Target

NAMES = ("aten._softmax.default", "aten._log_softmax.default")
NAN, INF = math.nan, math.inf


@each("name", NAMES)
@each("dim", [0, 1, 2, -1, -3])
def test_every_dim(name: str, dim: int, target: Target) -> None:
    check_op(name, tensor("S", 5, "T"), dim, False, target=target)


@each_float
@each("name", NAMES)
def test_float_types(name: str, dtype: str, target: Target) -> None:
    check_op(name, tensor("S", 7), -1, False, dtype=dtype, target=target)


@each("name", NAMES)
@each("length", [1, 2, 64, 67, 257, 1009])
def test_long_rows(name: str, length: int, target: Target) -> None:
    check_op(name, tensor("S", length), -1, False, live={"S": (3, 1, 2)}, target=target)


@each("name", NAMES)
def test_large_magnitudes(name: str, target: Target) -> None:
    rows = (
        (1e4, 1e4, -1e4),
        (1.5e38, -1.5e38, 0.0),
        (-1e30, -1e30, -1e30),
        (88.0, 89.0, 90.0),
        (-INF, 0.0, 1.0),
    )
    check_op(name, tensor(values=rows), -1, False, target=target)


@each("length", [3, 9001])
def test_logarithms_of_likely_elements(length: int, target: Target) -> None:
    """Relative: the logarithm of a sum near one."""
    row = [0.0, -6.0, *[-40.0] * (length - 2)]
    check_op("aten._log_softmax.default", tensor(values=row), 0, False, tolerance=1e-4, atol=0, target=target)


@each("name", NAMES)
def test_rows_without_an_answer(name: str, target: Target) -> None:
    rows = ((-INF, -INF, -INF), (INF, 0.0, 1.0), (0.0, NAN, 1.0), (NAN, 0.0, 1.0))
    check_op(name, tensor(values=rows), -1, False, target=target)


@each("name", NAMES)
def test_few_elements(name: str, target: Target) -> None:
    check_op(name, tensor(), 0, False, target=target)
    check_op(name, tensor("S", 0), 1, False, target=target)
    check_op(name, tensor("S", 0), 0, False, target=target)
    check_op(name, tensor("S", 3, "T"), 0, False, live=NOTHING, target=target)


@each("name", NAMES)
def test_refusals(name: str) -> None:
    refuse_op(name, tensor(3, 5), 2, False, out=((3, 5),), match="dim 2 is out of range for rank 2")
