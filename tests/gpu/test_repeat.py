"""A graph run several times in a submission: what grows does on the GPU, or else it runs once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from check import check_op
from row_cases import WORDS, added

from pteron import Device
from pteron.dtypes import DType
from pteron.errors import DeviceError, DtypeError
from pteron.gpu import Command, Copy, Replay, WordIncrements, submit
from pteron.gpu.recording import ParameterAdvance, increment_replay
from pteron.graph import Constant, Graph, Node, SymInt, Tensor
from pteron.host.tensors import View
from pteron.ops import Target
from pteron.runtime import multi_step as repeating
from pteron.runtime.multi_step import repeat
from pteron.runtime.session import Session

TABLE = np.arange(23 * 5, dtype=np.float32).reshape(23, 5)


def test_advance(target: Target) -> None:
    check_op("test.advance", *WORDS, oracle=added, dtype="i32", target=target)


def sliced(device: Device, divisor: int) -> Session:
    """Two rows of a table from p // divisor on, or only the last."""
    p, start, end, out = SymInt(0), SymInt(1), SymInt(2), Tensor(3, DType.F32, (2, 5))
    next_row, has_two = SymInt(5), SymInt(6)
    table = Tensor(
        4, DType.F32, TABLE.shape, Constant("t", DType.F32, TABLE.shape, memoryview(TABLE.tobytes()))
    )
    nodes = (
        Node(0, "floordiv" if divisor > 1 else "mul", (p, divisor, start)),
        Node(1, "lt", (start, 22, has_two)),
        Node(2, "add", (start, 1, next_row)),
        Node(3, "add", (next_row, has_two, end)),
        Node(4, "aten.slice_copy.Tensor", (table, 0, start, end, 1, out)),
    )
    return Session.of(Graph("sliced", nodes, (p,), (out,)), device)


def add(increments: WordIncrements | None, device: Device) -> list[Replay]:
    return [increment_replay(device, [increments])] if increments else []


@pytest.mark.parametrize("in_one_buffer", [True, False])
@pytest.mark.parametrize("runs", [1, 4, 18])
def test_the_requested_number_of_runs(
    runs: int, in_one_buffer: bool, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands of a step add the increments, or a dispatch of its own does if they are in several
    buffers."""
    if not in_one_buffer:
        monkeypatch.setattr(ParameterAdvance, "single_buffer", None)
    session = sliced(device, 1)
    states = session.states()
    seen: list[View] = []

    def each(_: object, outputs: Sequence[Any], increments: WordIncrements | None) -> list[Replay]:
        seen.extend(outputs)
        return add(increments, device)

    writes = session.counters.parameter_writes
    _, count = repeat(session, [4], states, {0: 1}, runs, each, ())
    assert count == runs
    (view,) = seen
    last = np.frombuffer(device.read(view.buffer, view.nbytes), np.float32).reshape(2, 5)
    np.testing.assert_array_equal(last, TABLE[4 + runs - 1 : 6 + runs - 1])
    written = session.counters.parameter_writes - writes
    if 4 + runs + 2 <= 23:  # the next call finds its parameters where the loop left them
        repeat(session, [4 + runs], states, {0: 1}, 1, each, ())
        assert session.counters.parameter_writes - writes == written
        last = np.frombuffer(device.read(view.buffer, view.nbytes), np.float32).reshape(2, 5)
        np.testing.assert_array_equal(last, TABLE[4 + runs : 6 + runs])
    session.close()


def test_over_the_bounds_of_plans(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan for two rows, then that for the one which is left: in one submission, from either's own
    parameters, whatever these were before."""
    session = sliced(device, 1)
    states = session.states()
    seen: list[View] = []
    submitted: list[int] = []
    gathered = device.create_buffer(4 * 5 * 16, "gathered")

    def each(_: object, outputs: Sequence[Any], increments: WordIncrements | None) -> list[Command]:
        seen.extend(outputs)
        copy = Copy(outputs[0].buffer, gathered, 20, target_offset=20 * len(seen))
        return [copy, *add(increments, device)]

    def noting_submit(*arguments: object) -> int:
        submitted.append(len(seen))
        return submit(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(repeating, "submit", noting_submit)
    for _ in range(2):
        seen.clear()
        _, count = repeat(session, [20], states, {0: 1}, 3, each, ())
        assert count == 3
        assert [view.shape for view in seen] == [(2, 5), (1, 5)]
        rows = np.frombuffer(device.read(gathered, 60), np.float32).reshape(3, 5)
        np.testing.assert_array_equal(rows[1:], TABLE[21:])  # of the first plan's last step, and the second's
    assert submitted == [2, 2]
    session.close()


def test_parameters_are_unknown_after_a_failed_submission(device: Device) -> None:
    """Some steps may have run, so the next call writes them, even if they are those of the first step."""
    session = sliced(device, 1)
    states = session.states()
    freed, other = (device.create_buffer(16, name) for name in ("freed", "other"))
    device.free(freed)

    def each(_: object, outputs: Sequence[Any], increments: WordIncrements | None) -> list[Replay]:
        return add(increments, device)

    with pytest.raises(DeviceError, match="'freed' was freed"):
        repeat(session, [4], states, {0: 1}, 3, each, [Copy(freed, other, 16)])
    writes = session.counters.parameter_writes
    repeat(session, [4], states, {0: 1}, 1, each, ())
    assert session.counters.parameter_writes == writes + 1
    session.close()


def test_once_where_a_parameter_grows_unevenly(device: Device) -> None:
    session = sliced(device, 3)
    states = session.states()
    for p in (4, 5, 6):
        assert repeat(session, [p], states, {0: 1}, 8, lambda *_: [], ())[1] == 1
    session.close()


def test_fractions_do_not_grow(device: Device) -> None:
    x, out = Tensor(0, DType.F32, (3,)), Tensor(1, DType.F32, (3,))
    session = Session.of(Graph("copied", (Node(0, "aten.neg.default", (x, out)),), (x,), (out,)), device)
    with pytest.raises(DtypeError, match="only integers can grow"):
        repeat(session, [np.zeros(3, np.float32)], session.states(), {0: 1}, 2, lambda *_: [], ())
    session.close()


def test_indices_stay_in_their_range(device: Device) -> None:
    """Rows of a table by indices that grow: as long as the greatest of them names a row."""
    index, out = Tensor(0, DType.I64, (2,)), Tensor(1, DType.F32, (2, 5))
    table = Tensor(
        2, DType.F32, TABLE.shape, Constant("t", DType.F32, TABLE.shape, memoryview(TABLE.tobytes()))
    )
    node = Node(0, "aten.index_select.default", (table, 0, index, out))
    session = Session.of(Graph("picked", (node,), (index,), (out,)), device)
    states = session.states()
    seen: list[View] = []

    def each(_: object, outputs: Sequence[Any], increments: WordIncrements | None) -> list[Replay]:
        seen.extend(outputs)
        return add(increments, device)

    given = np.array([2, 15], np.int64)
    _, count = repeat(session, [given], states, {0: 3}, 50, each, ())
    assert count == 3  # 15, 18, 21; there is no row 24
    found = np.frombuffer(device.read(seen[0].buffer, 40), np.float32).reshape(2, 5)
    np.testing.assert_array_equal(found, TABLE[[8, 21]])
    session.close()
