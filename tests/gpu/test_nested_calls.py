"""Calls in the middle of calls, as signal handlers make them: refused, and what they interrupt is right."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import interruption
import numpy as np
import pytest
from interruption import InterruptedAt

import pteron
from pteron import DeviceError
from pteron.runtime import Method

SOURCE = str(Path(pteron.__file__).parent)


class CalledAt(InterruptedAt):
    """Within it, a method is called, or reset, at the n-th point where a handler may run."""

    def __init__(self, point: int, method: Method, x: np.ndarray, is_reset: bool) -> None:
        super().__init__(point, SOURCE)
        self._method = method
        self._input = x
        self._is_reset = is_reset
        self.outcome = ""

    def interrupt(self) -> None:
        try:
            if self._is_reset:
                self._method.reset()
            else:
                self._method(self._input)
            self.outcome = "done"
        except DeviceError as error:
            assert "called by what interrupted another call" in str(error)  # noqa: PT017  # it may not come
            self.outcome = "refused"


@pytest.mark.parametrize("is_reset", [False, True])
@pytest.mark.parametrize("name", ["mlp_dynamic", "mutable_buffer_host", "two_delegates"])
def test_called_in_the_middle(name: str, programs: Path, is_reset: bool) -> None:
    """Wherever it comes: before the call has begun or after it was computed it may be served."""
    with pteron.load(programs / f"{name}.pte") as program:
        method = program["forward"]
        width = method.inputs[0].shape_max[1]
        x, other = np.full((3, width), 1, np.float32), np.full((3, width), 2, np.float32)
        right = {0: method(x)}
        method.reset()
        method(other)
        right[1] = method(x)  # where the other call was served first
        outcomes = set()
        for point in range(1, 500, 17):
            method.reset()
            with CalledAt(point, method, other, is_reset) as called:
                outputs = method(x)
            outcomes.add(called.outcome)
            is_first = called.outcome == "done" and not is_reset
            for found, *expected in zip(outputs, right[0], right[is_first], strict=True):
                assert any(np.array_equal(found, each) for each in expected), (point, called.outcome)
        assert {"refused", "done"} <= outcomes


def test_another_sequence_in_the_middle(programs: Path) -> None:
    """Sequences have states of their own, and one memory for what calls compute."""
    with pteron.load(programs / "mlp_dynamic.pte") as program, program.sequence() as other:
        method = program["forward"]
        x, second = (np.full((3, 7), value, np.float32) for value in (1, 2))
        right, outcomes = method(x), set()
        other["forward"](second)
        for point in range(1, 400, 13):
            with CalledAt(point, other["forward"], second, is_reset=False) as called:
                outputs = method(x)
            outcomes.add(called.outcome)
            np.testing.assert_array_equal(outputs[0], right[0])
        assert {"refused", "done"} <= outcomes


def test_closed_in_the_middle(programs: Path) -> None:
    """Nothing is closed then, and the call ends as if nothing had happened."""
    x = np.full((3, 7), 1, np.float32)
    outcomes: set[str] = set()
    for point in range(1, 400, 29):
        with pteron.load(programs / "mlp_dynamic.pte") as program:
            method = program["forward"]
            right = method(x)
            with interruption.CalledAt(point, SOURCE, partial(_close, program, outcomes)):
                try:
                    outputs = method(x)
                except DeviceError:  # closed before the call began
                    continue
            np.testing.assert_array_equal(outputs[0], right[0])
    assert "refused" in outcomes


def _close(program: pteron.Program, outcomes: set[str]) -> None:
    try:
        program.close()
        outcomes.add("closed")
    except DeviceError:
        outcomes.add("refused")


def test_states_of_a_call_whose_outputs_nobody_got(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pteron.load(programs / "mutable_buffer_host.pte") as program, program.sequence() as apart:
        method = program["forward"]
        x = np.ones((3, method.inputs[0].shape_max[1]), np.float32)
        right = [apart["forward"](x) for _ in range(2)]
        method(x)
        with monkeypatch.context() as patch:
            patch.setattr("pteron.runtime.method.result", _no_memory)
            with pytest.raises(MemoryError):
                method(x)
        try:
            found = method(x)
        except pteron.StateLost:
            return
        np.testing.assert_array_equal(found[0], right[1][0])


def _no_memory(*_: object) -> None:
    raise MemoryError
