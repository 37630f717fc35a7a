"""Live integers: computed on the host, read from inputs and shapes, and moving slices without a new plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from check import each
from small_graphs import END, HALF, SUM, P, Q, open_session

from pteron.dtypes import DType
from pteron.errors import GraphError, ShapeError
from pteron.graph import Constant, SymInt, Tensor
from pteron.host.tensors import HostResult
from pteron.runtime.delegate import Delegate
from pteron.runtime.outputs import Wanted

TABLE = np.arange(23 * 5, dtype=np.float32).reshape(23, 5)
POSITIONS = Tensor(10, DType.I64, (4,))
X = Tensor(11, DType.F32, (11, 5))
OUT = Tensor(12, DType.F32, (11, 5))
TABLE_VALUE = Tensor(
    13, DType.F32, TABLE.shape, Constant("table", DType.F32, TABLE.shape, memoryview(TABLE.tobytes()))
)


def fetch(session: Delegate, *inputs: Any) -> np.ndarray[Any, Any]:
    (result,) = session.run(inputs, [Wanted(DType.F32, on_gpu=False)])
    assert isinstance(result, HostResult)
    return result.numpy()


def test_a_chain_of_arithmetic() -> None:
    """(p + 3) * (p - q) // 2"""
    session = open_session(
        ("add", P, 3, SUM),
        ("sub", P, Q, HALF),
        ("mul", SUM, HALF, END),
        ("floordiv", END, 2, (product := SymInt(9))),
        inputs=(P, Q),
        outputs=(product, SUM),
    )
    for p, q in [(5, 2), (-5, 2), (0, 0), (4, -9)]:
        assert session.run([p, q], [None, None]) == [(p + 3) * (p - q) // 2, p + 3]
    assert session.counters.plans == 1


def test_division_by_zero() -> None:
    session = open_session(("floordiv", P, Q, SUM), inputs=(P, Q), outputs=(SUM,))
    with pytest.raises(ShapeError, match="node 0 floordiv: floordiv by zero"):
        session.run([5, 0], [None])


@each(("dim", "index", "value"), [(0, 0, 3), (0, -1, 9), (-1, 2, 7)])
def test_an_integer_from_an_input(dim: int, index: int, value: int) -> None:
    session = open_session(
        ("et_vk.select_as_symint.default", POSITIONS, dim, index, P), inputs=(POSITIONS,), outputs=(P,)
    )
    assert session.run([np.array([3, 5, 7, 9])], [None]) == [value]


def test_an_integer_from_a_place_that_is_not_there() -> None:
    session = open_session(
        ("et_vk.select_as_symint.default", POSITIONS, 0, 3, P), inputs=(POSITIONS,), outputs=(P,)
    )
    with pytest.raises(ShapeError, match=r"no element 3 along dim 0 of shape \[2\]"):
        session.run([np.array([3, 5])], [None])


def test_an_integer_from_floats() -> None:
    with pytest.raises(GraphError, match="read from integers, not f32"):
        open_session(("et_vk.select_as_symint.default", X, 0, 0, P), inputs=(X,), outputs=(P,))


def test_a_size_is_a_number_of_the_plan() -> None:
    session = open_session(("sym_size.int", X, -2, P), inputs=(X,), outputs=(P,))
    for rows in (11, 1, 7, 11):
        assert session.run([np.zeros((rows, 5), np.float32)], [None]) == [rows]
    assert session.counters.plans == 3


def window(*bounds: tuple[Any, ...], start: SymInt, end: SymInt) -> Delegate:
    """out = x + table[start:end], the bounds computed from x's rows and a position."""
    return open_session(
        ("et_vk.select_as_symint.default", POSITIONS, 0, -1, P),
        ("sym_size.int", X, 0, Q),
        *bounds,
        ("aten.slice_copy.Tensor", TABLE_VALUE, 0, start, end, 1, (rows := Tensor(20, DType.F32, (11, 5)))),
        ("aten.add.Tensor", X, rows, 1, OUT),
        inputs=(X, POSITIONS),
        outputs=(OUT,),
    )


def test_a_moving_window_is_one_plan_per_length() -> None:
    """Every exported language model reads its rotary tables so."""
    session = window(("add", P, Q, END), start=P, end=END)
    before = session.counters.plans
    for rows, position in [(4, 0), (1, 4), (1, 5), (11, 12), (1, 22), (4, 19), (1, 0)]:
        x = np.ones((rows, 5), np.float32)
        actual = fetch(session, x, np.array([0, 0, 0, position]))
        np.testing.assert_array_equal(actual, x + TABLE[position : position + rows])
    assert session.counters.plans - before <= 3


def test_a_window_at_half_the_position() -> None:
    session = window(("floordiv", P, 2, HALF), ("add", HALF, Q, END), start=HALF, end=END)
    before = session.counters.plans
    for position in (0, 1, 2, 9, 30):
        x = np.ones((3, 5), np.float32)
        actual = fetch(session, x, np.array([0, 0, 0, position]))
        np.testing.assert_array_equal(actual, x + TABLE[position // 2 : position // 2 + 3])
    assert session.counters.plans - before <= 1


@each(("rows", "position"), [(3, 21), (4, 22), (1, 23), (4, 24), (1, -1), (2, -5)])
def test_a_window_beyond_the_table(rows: int, position: int) -> None:
    """It neither moves, nor becomes shorter, and makes no plan."""
    session = window(("add", P, Q, END), start=P, end=END)
    x = np.ones((rows, 5), np.float32)
    fetch(session, x, np.array([0, 0, 0, 23 - rows]))
    plans = session.counters.plans
    bounds = f"a slice at {position} to {position + rows} leaves its dim, which has size 23"
    with pytest.raises(ShapeError, match=f"node 3 aten.slice_copy.Tensor: {bounds}"):
        fetch(session, x, np.array([0, 0, 0, position]))
    assert session.counters.plans == plans


@each("bounds", [(P, None), (0, P), (4, P), (P, 9)])
def test_one_live_bound_follows_the_rules_of_python(bounds: Any) -> None:
    """As `table[p:]`, `table[:p]`, `table[4:p]` and `table[p:9]`."""
    rows = Tensor(20, DType.F32, TABLE.shape)
    session = open_session(
        ("aten.slice_copy.Tensor", TABLE_VALUE, 0, *bounds, 1, rows), inputs=(P,), outputs=(rows,)
    )
    for position in (0, 7, 23, 24, 40, -1, -23, -24, -40):
        start, end = (position if bound is P else bound for bound in bounds)
        np.testing.assert_array_equal(fetch(session, position), TABLE[start:end])
