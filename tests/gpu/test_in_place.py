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


# Operators that are given their weights without a prepack: name, arguments with x and w, the shapes of both.
WEIGHTS: list[tuple[str, tuple[Any, ...], tuple[int, ...], tuple[int, ...]]] = [
    ("aten.linear.default", ("x", "w", None), (3, 7), (5, 7)),
    ("aten.mm.default", ("x", "w"), (3, 7), (7, 5)),
    ("aten.bmm.default", ("x", "w"), (2, 3, 7), (2, 7, 5)),
    ("aten.embedding.default", ("w", "x", -1, False, False), (3,), (7, 5)),
    ("aten.convolution.default", ("x", "w", None, (2,), (1,), (1,), False, (0,), 1), (1, 4, 9), (6, 4, 3)),
    (
        "aten.convolution.default",
        ("x", "w", None, (1, 1), (1, 1), (1, 1), False, (0, 0), 4),
        *((1, 4, 9, 7), (4, 1, 3, 3)),
    ),
    (
        "aten.convolution.default",
        ("x", "w", None, (1, 1), (1, 1), (1, 1), True, (0, 0), 1),
        *((1, 4, 5, 7), (4, 6, 3, 3)),
    ),
]


@pytest.mark.parametrize(("name", "arguments", "shape", "weights"), WEIGHTS)
def test_a_state_as_weights(
    name: str, arguments: tuple[Any, ...], shape: tuple[int, ...], weights: tuple[int, ...], target: Target
) -> None:
    """Read before it is written, each call sees what the one before left."""
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(0)
    first = random.standard_normal(weights, np.float32)
    x: np.ndarray[Any, Any] = random.standard_normal(shape, np.float32)
    if is_table := "embedding" in name:
        x = random.integers(0, weights[0], shape, np.int32)
    operator = getattr(torch.ops.aten, name.split(".")[1]).default

    def expected(held: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        given = {"x": torch.from_numpy(x if is_table else x.astype(np.float64)), "w": torch.from_numpy(held)}
        values = (given.get(each, each) if isinstance(each, str) else each for each in arguments)
        found = operator(*(list(each) if isinstance(each, tuple) else each for each in values))
        return np.asarray(found)

    out_shape = expected(first.astype(np.float64)).shape
    constant = Constant("first", DType.F32, weights, memoryview(first.tobytes()))
    tensors = {
        "w": Tensor(0, DType.F32, weights, constant),
        "x": Tensor(1, DType.I32 if is_table else DType.F32, shape),
    }
    state, out = Tensor(2, DType.F32, weights), Tensor(3, DType.F32, out_shape)
    given = (tensors.get(each, each) if isinstance(each, str) else each for each in arguments)
    nodes = (
        Node(0, "et_vk.prepack.default", (tensors["w"], state)),
        Node(1, name, (*given, out)),
        Node(2, "aten.add.Tensor", (state, state, -1.5, state)),
    )
    graph = Graph("weights", nodes, (tensors["x"],), (out,))
    delegate = Delegate(Session.of(graph, Device.open(), target=target))
    for power in range(3):
        held = first.astype(np.float64) * (-0.5) ** power
        np.testing.assert_allclose(fetch(delegate, x), expected(held), rtol=1e-5, atol=1e-5)
