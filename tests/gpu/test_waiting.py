"""`Device.wait` returns once all submitted work is done, whether it sleeps or polls."""

from __future__ import annotations

from time import perf_counter

import numpy as np
import pytest

from pteron import Device
from pteron.gpu import Copy, submit
from pteron.gpu.readback import _finished


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 30.0], ids=["asleep", "hardly awake", "awake"])
def test_nothing_is_left_to_do(seconds: float, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "wait_seconds", seconds)
    size = 1 << 20
    source, target = device.create_buffer(size, "source"), device.create_buffer(size, "target")
    readback = device.readback(size)
    for round in range(3):
        before = len(_finished)
        device.write(source, np.full(size // 4, round, np.uint32))
        submit(device, [Copy(source, target, size), Copy(target, readback.staging, size)])
        readback.begin()
        device.wait()
        assert readback.is_ready()
        assert np.frombuffer(readback.peek(0, size), np.uint32).tolist() == [round] * (size // 4)
        assert len(_finished) == before  # no ticket is forgotten
        readback.release()
        readback = device.readback(size)
    readback.release()
    for buffer in (source, target):
        device.free(buffer)


def test_nothing_was_submitted(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    device.wait()
    for seconds in (0.0, 30.0):
        monkeypatch.setattr(device, "wait_seconds", seconds)
        before, since = len(_finished), perf_counter()
        device.wait()
        assert len(_finished) == before
        assert perf_counter() - since < 10  # it does not wait for its time to be over
