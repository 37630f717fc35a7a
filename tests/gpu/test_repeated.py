"""Copies that would change nothing are omitted, unless their absence would be visible."""

from __future__ import annotations

import numpy as np
import pytest

from pteron import Device
from pteron.dtypes import DType
from pteron.graph import Graph, Node, Tensor
from pteron.host.tensors import HostResult
from pteron.passes import prepare
from pteron.plan import Compiled
from pteron.runtime.outputs import Wanted
from pteron.runtime.session import Counters, Session

ROWS_MAX = 7


def tensors(*memories: int | None) -> list[Tensor]:
    """Rows of five, many in the first two and one in the others, each in the memory object named."""
    return [
        Tensor(id, DType.F32, (ROWS_MAX if id < 2 else 1, 5), None, memory)
        for id, memory in enumerate(memories)
    ]


def last_row(x: Tensor, out: Tensor, index: int = 1) -> Node:
    return Node(index, "aten.slice_copy.Tensor", (x, 0, -1, 2**63 - 1, 1, out))


def negated(x: Tensor, out: Tensor, index: int) -> Node:
    return Node(index, "aten.neg.default", (x, out))


def outputs(graph: Graph, rows: int, device: Device) -> tuple[list[str], list[np.ndarray]]:
    """The kernels of a call with `rows` rows, and its outputs for the input 1, 2, 3, ..."""
    compiled = Compiled(prepare(graph), device.target)
    session = Session(compiled.executable, device, Counters(), compiled)
    given = np.arange(1, 5 * rows + 1, dtype=np.float32).reshape(rows, 5)
    wanted = [Wanted(DType.F32, on_gpu=False) for _ in graph.outputs]
    found = session.run([given], wanted, session.states())
    arrays = [result.numpy() for result in found if isinstance(result, HostResult)]
    session.close()
    plan = compiled.plan((given.shape,), {})
    return [launch.module.kernel.name for launch in plan.launches], arrays


@pytest.mark.parametrize("rows", [1, 2, ROWS_MAX])
def test_the_last_of_one_row_is_that_row(rows: int, device: Device) -> None:
    x, many, one, out = tensors(None, None, None, None)
    nodes = (negated(x, many, 0), last_row(many, one), negated(one, out, 2))
    kernels, (found,) = outputs(Graph("last", nodes, (x,), (out,)), rows, device)
    assert kernels == ["unary", *["copy"] * (rows > 1), "unary"]
    np.testing.assert_array_equal(found, np.arange(5 * rows - 4, 5 * rows + 1, dtype=np.float32)[None])


def test_so_are_views_of_it_and_copies_of_copies(device: Device) -> None:
    x, many, one, again = tensors(None, None, None, None)
    view, out = Tensor(4, DType.F32, (5,)), Tensor(5, DType.F32, (5,))
    nodes = (
        negated(x, many, 0),
        last_row(many, one),
        last_row(one, again, 2),
        Node(3, "aten.view_copy.default", (again, (5,), view)),
        negated(view, out, 4),
    )
    kernels, (found,) = outputs(Graph("views", nodes, (x,), (out,)), 1, device)
    assert kernels == ["unary", "unary"]
    np.testing.assert_array_equal(found, np.arange(1, 6, dtype=np.float32))


def test_not_where_the_source_is_written_before_the_last_read(device: Device) -> None:
    x, many, one, other = tensors(None, 0, None, 0)  # `other` takes the place of `many`
    out = Tensor(4, DType.F32, (1, 5))
    nodes = (
        negated(x, many, 0),
        last_row(many, one),
        negated(one, other, 2),
        Node(3, "aten.sub.Tensor", (one, other, 1, out)),
    )
    kernels, (found,) = outputs(Graph("overwritten", nodes, (x,), (out,)), 1, device)
    assert kernels == ["unary", "copy", "unary", "binary_alike"]
    np.testing.assert_array_equal(found, -2 * np.arange(1, 6, dtype=np.float32)[None])


def test_not_where_the_caller_sees_it(device: Device) -> None:
    x, many, one, out = tensors(None, None, None, None)
    nodes = (negated(x, many, 0), last_row(many, one), negated(one, out, 2))
    kernels, (first, second) = outputs(Graph("seen", nodes, (x,), (one, out)), 1, device)
    assert kernels == ["unary", "copy", "unary"]
    np.testing.assert_array_equal(first, -np.arange(1, 6, dtype=np.float32)[None])
    np.testing.assert_array_equal(second, np.arange(1, 6, dtype=np.float32)[None])


def test_not_where_it_is_changed_in_place(device: Device) -> None:
    (x, many, one), out = tensors(None, None, None), Tensor(3, DType.F32, (ROWS_MAX, 5))
    nodes = (
        negated(x, many, 0),
        last_row(many, one),
        Node(2, "aten.add.Tensor", (one, one, 1, one)),
        Node(3, "aten.sub.Tensor", (one, many, 1, out)),
    )
    kernels, (found,) = outputs(Graph("changed", nodes, (x,), (out,)), 1, device)
    assert kernels.count("copy") == 2  # the row, and what brings the sum home
    np.testing.assert_array_equal(found, -np.arange(1, 6, dtype=np.float32)[None])


def test_not_where_elements_change_their_type(device: Device) -> None:
    x, many = tensors(None, None)
    one, out = Tensor(2, DType.I32, (1, 5)), Tensor(3, DType.I32, (1, 5))
    nodes = (negated(x, many, 0), last_row(many, one), negated(one, out, 2))
    kernels, (found,) = outputs(Graph("converted", nodes, (x,), (out,)), 1, device)
    assert kernels == ["unary", "copy", "unary"]
    np.testing.assert_array_equal(found, np.arange(1, 6)[None])
