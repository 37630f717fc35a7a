"""Bounds of integers through a delegate's graph: what may leave 32 bits is found, what cannot is let be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pteron import DType, DtypeError
from pteron.graph import Graph, Node, Tensor
from pteron.graph.values import Constant
from pteron.runtime.integer_ranges import Range, check_ranges

A, B, OUT = Tensor(0, DType.I32, (4,)), Tensor(1, DType.I32, (4,)), Tensor(2, DType.I32, (4,))
LATER = Tensor(3, DType.I32, (4,))
MASK = Tensor(4, DType.BOOL, (4,))
TABLE = np.array([5, -7], np.int32)
CONSTANT = Tensor(5, DType.I32, (2,), Constant("t", DType.I32, (2,), memoryview(TABLE.tobytes())))
HALF = 1 << 30


def check(given: dict[int, Range], *calls: tuple[Any, ...]) -> None:
    nodes = tuple(Node(index, name, args) for index, (name, *args) in enumerate(calls))  # type: ignore[arg-type]
    check_ranges(Graph("graph", nodes, (A, B), (OUT,)), given)


@pytest.mark.parametrize(
    ("given", "calls", "found"),
    [
        ({0: (0, HALF), 1: (0, HALF)}, [("aten.add.Tensor", A, B, 1, OUT)], "0 to 2147483648"),
        ({0: (0, HALF), 1: (0, HALF - 1)}, [("aten.add.Tensor", A, B, 1, OUT)], None),
        ({0: (0, 9), 1: (0, HALF)}, [("aten.add.Tensor", A, B, 3, OUT)], "0 to 3221225481"),
        ({0: (0, 9), 1: (0, HALF)}, [("aten.sub.Tensor", A, B, 2, OUT)], None),
        ({0: (-9, 9), 1: (0, HALF)}, [("aten.sub.Tensor", A, B, 2, OUT)], "-2147483657 to 9"),
        ({0: (-65536, 5)}, [("aten.mul.Tensor", A, A, OUT)], "-327680 to 4294967296"),
        ({0: (-3, 5)}, [("aten.mul.Tensor", A, CONSTANT, OUT)], None),
        ({0: (0, 1 << 29)}, [("aten.mul.Tensor", A, CONSTANT, OUT)], "-3758096384 to 2684354560"),
        ({0: (0, 1 << 28)}, [("aten.mul.Scalar", A, 9, OUT)], "0 to 2415919104"),
        ({0: (-(1 << 31), 0)}, [("aten.neg.default", A, OUT)], "0 to 2147483648"),
        ({0: (0, HALF)}, [("aten.sum.dim_IntList", A, (0,), False, None, OUT)], "0 to 4294967296"),
        ({0: (5, HALF)}, [("aten.sum.dim_IntList", A, (0,), False, None, OUT)], "from 0 to 4294967296"),
        ({0: (0, 9)}, [("aten.cumsum.default", A, 0, OUT)], None),
        (
            {0: (0, 9)},
            [("aten.argmax.default", A, 0, False, OUT), ("aten.mul.Scalar", OUT, HALF, LATER)],
            "node 1.*0 to 4294967296",
        ),
        (
            {0: (0, 9)},
            [("aten.clamp.default", A, -2, HALF, OUT), ("aten.mul.Scalar", OUT, 2, LATER)],
            "node 1.*-4 to 2147483648",
        ),
        (
            {0: (0, 9)},
            [("aten.constant_pad_nd.default", A, (1, 1), HALF, OUT), ("aten.mul.Scalar", OUT, 2, LATER)],
            "node 1.*0 to 2147483648",
        ),
        ({0: (0, 9)}, [("aten.slice_copy.Tensor", A, 0, 0, (1 << 63) - 1, 1, OUT)], None),
        (
            {0: (0, HALF)},
            [("aten.slice_copy.Tensor", A, 0, 0, 2, 1, OUT), ("aten.mul.Scalar", OUT, 2, LATER)],
            "node 1.*0 to 2147483648",
        ),
        (
            {0: (0, 9)},
            [("aten.where.self", MASK, A, CONSTANT, OUT), ("aten.mul.Scalar", OUT, 9, LATER)],
            None,
        ),
        ({}, [("aten.mul.Scalar", A, 2, OUT)], "-4294967296 to 4294967294"),  # nothing is known of A
        ({0: (0, 9)}, [("aten.strange.default", A, OUT), ("aten.mul.Scalar", OUT, 2, LATER)], "node 1"),
        ({0: (0, 1 << 40)}, [("aten.mul.Tensor", A, A, Tensor(9, DType.F32, (4,)))], None),  # no integers
    ],
)
def test_bounds(given: dict[int, Range], calls: list[tuple[Any, ...]], found: str | None) -> None:
    if found is None:
        check(given, *calls)
        return
    with pytest.raises(DtypeError, match=found):
        check(given, *calls)
