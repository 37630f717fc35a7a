"""Which plans a session keeps, and for what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sketch import Sketch

from pteron import DType
from pteron.gpu import Device
from pteron.host.tensors import HostResult
from pteron.ops import OPERATORS, LiveInt, Operand, require
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


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """An operator that takes no live dims; notes for each plan whether it had some."""
    operator, noted = OPERATORS[RELU], list[bool]()

    def compute(x: Operand, *rest: Any, **options: Any) -> Any:
        noted.append(any(isinstance(size, LiveInt) for size in x.shape))
        require(not noted[-1], "relu needs plain sizes", x)
        return operator.compute(x, *rest, **options)

    monkeypatch.setitem(OPERATORS, RELU, replace(operator, compute=compute))
    return noted


def test_a_key_that_is_refused_is_tried_once(new: New, tries: list[bool]) -> None:
    session = new()
    for rows in (7, 8, 9, 7):
        run(session, rows, 30)
    assert tries == [False, True, False, False, False]
