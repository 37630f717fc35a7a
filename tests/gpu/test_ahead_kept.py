"""Command buffers that were recorded ahead: each is submitted once, however calls alternate and end, since
what is never submitted is never freed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pteron
from pteron.gpu import Commands
from pteron.runtime import prerecord


@pytest.fixture
def unsubmitted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many command buffers were recorded from now on and not submitted."""
    count = 0
    record, submit = Commands.record, Commands.submit_locked

    def noting_record(commands: Commands) -> None:
        nonlocal count
        record(commands)
        count += 1

    def noting_submit(commands: Commands) -> int:
        nonlocal count
        is_recorded = commands.is_recorded
        number = submit(commands)
        count -= is_recorded
        return number

    monkeypatch.setattr(Commands, "record", noting_record)
    monkeypatch.setattr(Commands, "submit_locked", noting_submit)
    return lambda: count


def test_states_that_alternate(programs: Path, unsubmitted: Callable[[], int]) -> None:
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
    assert unsubmitted() == 0


def test_more_kinds_than_are_kept(programs: Path, unsubmitted: Callable[[], int]) -> None:
    """Then nothing more is recorded ahead, and what was is submitted in the end."""
    with pteron.load(programs / "mlp_dynamic.pte") as program:
        method = program["forward"]
        most, width = method.inputs[0].shape_max
        x = np.ones((most, width), np.float32)
        expected = [method(x[:rows])[0] for rows in range(1, most + 1)]
        assert most > prerecord._PARKED
        for _ in range(5):
            for rows in range(1, most + 1):
                for _ in range(2):
                    np.testing.assert_array_equal(method(x[:rows])[0], expected[rows - 1])
            assert unsubmitted() <= prerecord._PARKED + 1
    assert unsubmitted() == 0
