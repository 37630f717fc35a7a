"""Operators that write where they read: results come home through scratch memory, states outlive a call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from arguments import tensor, weight
from check import check_op

from pteron.dtypes import DType
from pteron.gpu import Device
from pteron.graph import Constant, Graph, Node, Tensor
from pteron.host.tensors import HostResult
from pteron.ops import Target
from pteron.runtime.delegate import Delegate
from pteron.runtime.outputs import Wanted
from pteron.runtime.session import Session

START = np.arange(15, dtype=np.float32).reshape(3, 5)


@pytest.fixture
def accumulator() -> Delegate:
    """state = state + x; the output is the state."""
    constant = Constant("start", DType.F32, START.shape, memoryview(START.tobytes()))
    state, x = Tensor(0, DType.F32, (3, 5), constant), Tensor(1, DType.F32, (3, 5))
    graph = Graph("accumulator", (Node(0, "aten.add.Tensor", (state, x, 1, state)),), (x,), (state,))
    return Delegate(Session.of(graph, Device.open()))


@pytest.fixture
def smoother(target: Target) -> Delegate:
    """y = state + x; out = state; state = relu(x); state = state · y; out = out - state. The state is what a
    prepack makes, as exporters write it."""
    constant = Constant("start", DType.F32, START.shape, memoryview(START.tobytes()))
    start, state = Tensor(0, DType.F32, (3, 5), constant), Tensor(1, DType.F32, (3, 5))
    x, y, shown, out = (Tensor(id, DType.F32, (3, 5)) for id in (2, 3, 4, 5))
    nodes = (
        Node(0, "et_vk.prepack.default", (start, state)),
        Node(1, "aten.view_copy.default", (state, (3, 5), shown)),
        Node(2, "aten.add.Tensor", (state, x, 1, y)),
        Node(3, "aten.relu.default", (x, state)),
        Node(4, "aten.mul.Tensor", (state, y, state)),
        Node(5, "aten.sub.Tensor", (shown, state, 1, out)),
    )
    graph = Graph("smoother", nodes, (x,), (y, out, state))
    return Delegate(Session.of(graph, Device.open(), target=target))


def fetch(session: Delegate, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    (result,) = session.run([x], [Wanted(DType.F32, on_gpu=False)])
    assert isinstance(result, HostResult)
    return result.numpy()


def test_a_state_adds_up_and_resets(accumulator: Delegate) -> None:
    x = np.full((3, 5), 2, np.float32)
    np.testing.assert_array_equal(fetch(accumulator, x), START + 2)
    np.testing.assert_array_equal(fetch(accumulator, x), START + 4)
    accumulator.reset()
    np.testing.assert_array_equal(fetch(accumulator, x), START + 2)


def test_each_read_sees_the_state_at_its_place(smoother: Delegate) -> None:
    states = {smoother: START, Delegate(smoother.session): START}
    for k in (1, -2, 3, 4):
        for sequence, before in states.items():
            x = (START - 5) * np.float32(k)
            results = sequence.run([x], [Wanted(DType.F32, on_gpu=False)] * 3)
            y = before + x
            states[sequence] = after = np.maximum(x, 0) * y
            for result, wanted in zip(results, (y, before - after, after), strict=True):
                assert isinstance(result, HostResult)
                np.testing.assert_array_equal(result.numpy(), wanted)


def test_one_tensor_as_both_operands() -> None:
    x = tensor("S", 5)
    check_op("aten.mul.Tensor", x, x)
    check_op("aten.mm.default", square := tensor(5, 5), square)


def test_constants_alone_are_computed_at_load() -> None:
    check_op("aten.mul.Tensor", weight(3, 5), weight(5), plans=0)
