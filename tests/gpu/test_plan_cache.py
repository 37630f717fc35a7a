"""Which plans a session keeps, and for what."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sketch import Sketch

from pteron import DType
from pteron.gpu import Device
from pteron.host.tensors import HostResult
from pteron.ops import OPERATORS, AnyInt, LiveInt, Operand, require
from pteron.plan import Compiled, Plan, Shapes
from pteron.runtime.delegate import Delegate
from pteron.runtime.outputs import Wanted
from pteron.runtime.session import Session

RELU = "aten.relu.default"
New = Callable[[], Session]


@pytest.fixture
def new(device: Device) -> Iterator[New]:
    """Makes sessions of x -> max(x, 0), of [40, 30] elements at most."""
    made: list[Session] = []

    def session() -> Session:
        sketch = Sketch()
        x, out = sketch.tensor(40, 30), sketch.tensor(40, 30)
        sketch.node(RELU, x, out)
        made.append(Session.of(sketch.graph([x], [out]), device))
        return made[-1]

    yield session
    for each in made:
        each.close()


def run(session: Session, *shape: int) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    (found,) = Delegate(session).run([x], [Wanted(DType.F32, on_gpu=False)])
    assert isinstance(found, HostResult)
    np.testing.assert_array_equal(found.numpy(), np.maximum(x, 0))


def refuse(monkeypatch: pytest.MonkeyPatch, is_refused: Callable[[AnyInt], bool]) -> list[bool]:
    """Let an operator take no live dims for some numbers of rows; notes for each plan whether it had some."""
    operator, noted = OPERATORS[RELU], list[bool]()

    def compute(x: Operand, *rest: Any, **options: Any) -> Any:
        noted.append(any(isinstance(size, LiveInt) for size in x.shape))
        require(not (noted[-1] and is_refused(x.shape[0])), "relu needs plain sizes", x)
        return operator.compute(x, *rest, **options)

    monkeypatch.setitem(OPERATORS, RELU, replace(operator, compute=compute))
    return noted


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of an operator that takes no live dims."""
    return refuse(monkeypatch, lambda _: True)


def test_a_key_that_is_refused_is_tried_at_few_sizes(new: New, tries: list[bool]) -> None:
    session = new()
    for rows in (7, 8, 9, 7, 10, 11, 12, 11):
        run(session, rows, 30)
    assert tries == [False, *[True, False] * 4, False, False]


def test_sizes_share_a_plan_beside_one_that_is_refused(new: New, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, lambda rows: rows < 8)
    session = new()
    before = session.counters.plans
    for rows in (7, 8, 9, 7, 10, 11):
        run(session, rows, 30)
    assert session.counters.plans - before == 2


def test_plans_ahead_are_plain_where_an_operator_needs_it(new: New, tries: list[bool]) -> None:
    session = new()
    session.make_plan([np.zeros((7, 30), np.float32)])
    assert tries == [False, True, False]
    run(session, 7, 30)
    assert len(tries) == 3


def test_kernels_of_plans_ahead_are_counted(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan for one row has another kernel than that for all."""
    sketch = Sketch()
    x, out = sketch.tensor(40, 64), sketch.tensor(40, 16)
    sketch.node("aten.linear.default", x, sketch.constant(16, 64), None, out)
    session = Session.of(sketch.graph([x], [out]), device)
    monkeypatch.setattr(device, "recent_kernel_bytes", 0)
    gc.collect()
    device.release_kernels()
    before, compiled = session.counters.kernels, device.compiled
    session.make_plan([np.zeros((1, 64), np.float32)])
    assert session.counters.kernels - before == device.compiled - compiled > 0
    session.close()


def test_a_dim_that_becomes_live_while_a_plan_is_made(new: New, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a call on another thread: the plan that is kept is one that later calls find."""
    operator = OPERATORS[RELU]

    def compute(x: Operand, *rest: Any, **options: Any) -> Any:
        int(x.shape[1])  # the call's plan does not suit the other size
        return operator.compute(x, *rest, **options)

    monkeypatch.setitem(OPERATORS, RELU, replace(operator, compute=compute))
    session, plan = new(), Compiled.plan
    calls = iter([(40, 5)])

    def with_a_call(compiled: Compiled, shapes: Shapes, values: Mapping[int, int]) -> Plan:
        for shape in calls:
            run(session, *shape)
        return plan(compiled, shapes, values)

    monkeypatch.setattr(Compiled, "plan", with_a_call)
    made = session.make_plan([np.zeros((7, 30), np.float32)])
    assert session.make_plan([np.zeros((7, 30), np.float32)]) is made
