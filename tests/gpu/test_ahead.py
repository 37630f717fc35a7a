"""Calls recorded while the one before them runs: used where a call repeats another, dropped where it does
not, and never submitted once something in them is gone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden import assert_outputs, read_cases
from sketch import Sketch

import pteron
from pteron import Device
from pteron.dtypes import DType
from pteron.gpu import Commands
from pteron.host.tensors import HostResult
from pteron.host.values import HostTensor
from pteron.runtime.delegate import Delegate
from pteron.runtime.outputs import Wanted
from pteron.runtime.session import Session

pytestmark = pytest.mark.usefixtures("encoding")


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What sessions do from now on: `record` and `submit`, in order."""
    seen: list[str] = []
    record, submit = Commands.record, Commands.submit_locked

    def noting_record(commands: Commands) -> None:
        seen.append("record")
        record(commands)

    def noting_submit(commands: Commands) -> int:
        seen.append("submit")
        return submit(commands)

    monkeypatch.setattr(Commands, "record", noting_record)
    monkeypatch.setattr(Commands, "submit_locked", noting_submit)
    return seen


@pytest.mark.long(every=2)
def test_a_call_that_repeats_is_recorded_before_it_is_made(programs: Path, events: list[str]) -> None:
    (case, *_) = read_cases(programs / "mlp.npz")
    with pteron.load(programs / "mlp.pte") as program:
        method = program["forward"]
        for expected in (["submit"], ["submit", "record"], ["submit", "record"]):
            events.clear()
            assert_outputs(method(*case.inputs), case.outputs)
            assert events == expected
        before = method.counters
        method(*case.inputs)
        after = method.counters
        assert after.bytes_read - before.bytes_read == case.outputs[0].nbytes
        assert after.dispatches > before.dispatches


@pytest.mark.long(every=2)
def test_other_shapes_and_inputs(programs: Path) -> None:
    """The same shapes twice and thrice, then others: always the answer of this call."""
    cases = read_cases(programs / "mlp_dynamic.npz")
    with pteron.load(programs / "mlp_dynamic.pte") as program:
        method = program["forward"]
        expected = [method(*case.inputs) for case in cases]
        for index in (0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 1, 1, 1):
            np.testing.assert_array_equal(method(*cases[index].inputs)[0], expected[index][0])
            doubled = [2 * value for value in cases[index].inputs]
            assert (method(*doubled)[0] != expected[index][0]).any()


def test_an_interrupt_between_sequences_of_other_sizes(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One recording serves both. An interrupt leaves its parameters at the size of the other sequence."""
    sketch = Sketch()
    x, out = sketch.tensor(17, 7), sketch.tensor(17, 7)
    sketch.node("aten.relu.default", x, out)
    session, wanted = Session.of(sketch.graph([x], [out]), device), [Wanted(DType.F32, on_gpu=False)]
    first, second = Delegate(session), Delegate(session)
    long, short = (HostTensor(np.ones((rows, 7), np.float32), DType.F32) for rows in (13, 5))
    for _ in range(3):
        first.run([long], wanted)
    for _ in range(3):
        second.run([short], wanted)
    write = Device.write

    def interrupted(*_: object) -> None:
        monkeypatch.setattr(Device, "write", write)
        raise KeyboardInterrupt

    monkeypatch.setattr(Device, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        first.run([long], wanted)
    (found,) = first.run([HostTensor(3 * long.array, DType.F32)], wanted)
    assert isinstance(found, HostResult)
    np.testing.assert_array_equal(found.numpy(), 3 * long.array)


def test_inputs_of_other_kinds_between(programs: Path) -> None:
    """Calls that repeat bring arrays as they are; whatever comes between is looked at again."""
    (case, *_) = read_cases(programs / "mlp.npz")
    (x,) = case.inputs
    with pteron.load(programs / "mlp.pte") as program:
        method = program["forward"]
        (expected,), (doubled,) = method(x), method(2 * x)
        strided = np.repeat(2 * x, 2, axis=-1)[..., ::2]
        for _ in range(4):
            uploaded = method.counters.bytes_uploaded
            np.testing.assert_array_equal(method(x)[0], expected)
            assert method.counters.bytes_uploaded - uploaded == x.nbytes
        for given in (strided, np.asfortranarray(2 * x), (2 * x).tolist()):
            np.testing.assert_array_equal(method(given)[0], doubled)
            np.testing.assert_array_equal(method(x)[0], expected)
        for wrong in (x.astype(np.float64), x[..., :-1]):
            with pytest.raises(pteron.InputError):
                method(wrong)
            np.testing.assert_array_equal(method(x)[0], expected)


def test_outputs_of_earlier_calls_stay(programs: Path) -> None:
    (case, *_) = read_cases(programs / "mlp.npz")
    with pteron.load(programs / "mlp.pte") as program:
        method = program["forward"]
        results = [method(*(step * value for value in case.inputs))[0] for step in range(1, 7)]
        for step, result in enumerate(results, 1):
            np.testing.assert_array_equal(result, method(*(step * value for value in case.inputs))[0])


def test_states_advance_and_reset(programs: Path) -> None:
    ones, zeros = np.ones((3, 5), np.float32), np.zeros((3, 5), np.float32)
    with pteron.load(programs / "mutable_buffer.pte") as program:
        first, second = program["forward"], program.sequence()["forward"]
        initial = first(zeros)[0] / 2
        for _ in range(2):
            for step in range(1, 6):
                np.testing.assert_allclose(first(ones)[0] / 2 - initial, step, rtol=1e-6)
            np.testing.assert_array_equal(second(zeros)[0] / 2, initial)
            first.reset()


def test_states_that_alternate(programs: Path) -> None:
    """Command buffers recorded ahead for outputs on the host and on the GPU run only in a call of that kind:
    the state advances once per call."""
    ones, zeros = np.ones((3, 5), np.float32), np.zeros((3, 5), np.float32)
    with pteron.load(programs / "mutable_buffer.pte") as program:
        method = program["forward"]
        initial = method(zeros)[0] / 2
        places = (False, False, False, True, False, True, True, False, False, False)
        for total, on_gpu in enumerate(places, 1):
            (found,) = method(ones, on_gpu=on_gpu)
            array = found.numpy() if on_gpu else found
            np.testing.assert_allclose(array / 2 - initial, total, rtol=1e-6)


def test_tensors_on_the_gpu(programs: Path, events: list[str]) -> None:
    """What stays there gets memory of its own, and what comes from there is copied: nothing is foreseen."""
    (case, *_) = read_cases(programs / "mlp.npz")
    with pteron.load(programs / "mlp.pte") as program:
        method = program["forward"]
        for _ in range(3):
            events.clear()
            (kept,) = method(*case.inputs, on_gpu=True)
            assert events == ["submit"]
            assert_outputs([kept], case.outputs)
        for keep in (False, False, True, False, False, False):
            assert_outputs(method(*case.inputs, on_gpu=keep), case.outputs)


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_closing(programs: Path, device: Device, calls: int) -> None:
    """The program, a sequence, the device: what was recorded for them is not submitted."""
    (case, *_) = read_cases(programs / "mutable_buffer.npz")

    def call(method: pteron.Method) -> Sequence[Any]:
        return [method(*case.inputs) for _ in range(calls)]

    program = pteron.load(programs / "mutable_buffer.pte")
    method = program["forward"]
    sequence = program.sequence()
    of_sequence = sequence["forward"]
    call(method)
    call(of_sequence)
    sequence.close()
    with pytest.raises(pteron.DeviceError, match="closed"):
        of_sequence(*case.inputs)
    call(method)
    program.close()
    with pytest.raises(pteron.DeviceError, match="closed"):
        method(*case.inputs)
    own = Device(device.adapter)
    method = pteron.load(programs / "mutable_buffer.pte", device=own)["forward"]
    call(method)
    own.close()
    with pytest.raises(pteron.DeviceError, match="closed"):
        method(*case.inputs)
    method.close()


def test_a_failure_ahead_spoils_no_call(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that cannot be recorded ahead is recorded when it is made."""
    (case, *_) = read_cases(programs / "mlp.npz")

    def failing(commands: Commands) -> None:
        raise pteron.DeviceError("no memory")

    with pteron.load(programs / "mlp.pte") as program:
        method = program["forward"]
        for _ in range(3):
            method(*case.inputs)
        monkeypatch.setattr(Commands, "record", failing)
        for _ in range(3):
            assert_outputs(method(*case.inputs), case.outputs)


def test_large_outputs_are_not_held_twice(
    programs: Path, events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pteron.runtime.session._PRERECORD_BYTES_MAX", 8)
    (case, *_) = read_cases(programs / "mlp.npz")
    with pteron.load(programs / "mlp.pte") as program:
        for _ in range(3):
            events.clear()
            assert_outputs(program["forward"](*case.inputs), case.outputs)
            assert events == ["submit"]
