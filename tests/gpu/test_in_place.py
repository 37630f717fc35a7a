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


def test_one_tensor_as_both_operands() -> None:
    x = tensor("S", 5)
    check_op("aten.mul.Tensor", x, x)
    check_op("aten.mm.default", square := tensor(5, 5), square)


def test_constants_alone_are_computed_at_load() -> None:
    check_op("aten.mul.Tensor", weight(3, 5), weight(5), plans=0)
