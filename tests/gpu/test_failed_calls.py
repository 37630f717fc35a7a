"""Calls, loads and resets that fail at any step: states are what they were, or lost until reset."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from failing import Failing
from golden import Array, read_cases

import pteron
from pteron import Device, Method, OutOfMemory, StateLost

PROGRAMS = ["mutable_buffer", "mutable_buffer_written", "attention_cache"]
STATEFUL = [*(f"programs/{name}" for name in PROGRAMS), "models/tiny_llama_q4"]
CALLS = 3


@pytest.fixture(params=STATEFUL)
def case(
    request: pytest.FixtureRequest, models: Path, device: Device
) -> Iterator[tuple[Method, list[list[Array]]]]:
    """A method that keeps something between calls, and the inputs of some calls that follow one another."""
    file = models.parent / f"{request.param}.pte"
    if request.param.startswith("models"):
        calls = [
            [np.array([[5, 9, 17]]), np.array([0])],
            [np.array([[3]]), np.array([3])],
            [np.array([[8]]), np.array([4])],
        ]
    else:
        calls = [each.inputs for each in read_cases(file.with_suffix(".npz"))][:CALLS]
        calls += calls[-1:] * (CALLS - len(calls))
    with pteron.load(file, device=device) as program:
        yield program["forward"], calls


def answers(method: Method, calls: Sequence[Sequence[Array]]) -> list[list[bytes]]:
    """The bits of what calls give that follow one another from the beginning."""
    method.reset()
    return [[np.asarray(output).tobytes() for output in method(*inputs)] for inputs in calls]


def check_recovery(
    method: Method, calls: Sequence[Sequence[Array]], expected: list[list[bytes]], where: str
) -> bool:
    """After the last call failed: its states are as before it, or it says that they are lost. Which."""
    try:
        again = [np.asarray(output).tobytes() for output in method(*calls[-1])]
    except StateLost:
        with pytest.raises(StateLost, match=r"reset\(\)"):
            method(*calls[0])
        assert answers(method, calls) == expected
        return True
    assert again == expected[-1], where
    return False


def is_free(device: Device) -> bool:
    """Whether no thread has the device's lock."""
    taken = list[bool]()

    def take() -> None:
        taken.append(device.lock.acquire(blocking=False))
        if taken[0]:
            device.lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return taken[0]


@pytest.mark.long(every=4)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_call_that_fails_at_any_step(
    case: tuple[Method, list[list[Array]]], device: Device, after: bool
) -> None:
    method, calls = case
    expected = answers(method, calls)
    assert answers(method, calls) == expected
    at, failed, lost = 0, set[str](), 0
    while True:
        at += 1
        method.reset()
        for inputs in calls[:-1]:
            method(*inputs)
        failing = Failing(at, OutOfMemory("no room"), after=after)
        with suppress(OutOfMemory), failing:
            method(*calls[-1])
        if failing.left > 0:
            break
        assert is_free(device)
        failed.add(failing.where)
        if failing.is_raised:  # what fails while the next call is recorded, that one will say
            lost += check_recovery(method, calls, expected, failing.where)
    assert {"write", "submit_locked"} <= failed
    assert lost


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("name", "step"),
    [  # one kind of step each: threads come to them in any order
        ("programs/norms", "create_buffer"),
        ("programs/norms", "write"),
        ("programs/norms", "_compile"),
        ("models/tiny_llama_q4", "create_buffer"),
        ("models/tiny_llama_q4", "write"),
    ],
)
def test_a_load_that_fails_leaves_nothing(
    models: Path, device: Device, monkeypatch: pytest.MonkeyPatch, name: str, step: str, after: bool
) -> None:
    """Once its program is closed: weights may wait there for the next try, which succeeds."""
    gc.collect()
    before = device.buffer_bytes, len(device.uploads)
    if name == "programs/norms":  # which has few kernels to compile again
        monkeypatch.setattr(device, "recent_kernel_bytes", 0)
        device.release_kernels()
    at = 0
    while True:
        at += 1 + at // 3
        failing = Failing(at, OutOfMemory("no room"), after=after, only=step)
        with pteron.load(models.parent / f"{name}.pte", device=device) as program:
            with suppress(OutOfMemory), failing:
                program["forward"]
            if failing.left <= 0:
                assert program["forward"].gpu_bytes["weights"] > 0
        del program
        gc.collect()
        assert (device.buffer_bytes, len(device.uploads)) == before, at
        if failing.left > 0:
            break
    assert at > 1, "loading does without this step"


def test_a_caller_that_tracks_positions_goes_on(models: Path, device: Device) -> None:
    """A cache is good up to the position that a failed call wrote to, and that is written again."""
    calls = [[np.array([[5, 9, 17]]), np.array([0])], [np.array([[3]]), np.array([3])]]
    with pteron.load(models / "tiny_llama_q4.pte", device=device) as program:
        method = program["forward"]
        expected = answers(method, calls)
        method.reset()
        method(*calls[0])
        with pytest.raises(OutOfMemory), Failing(1, OutOfMemory("no room"), after=True, only="submit_locked"):
            method(*calls[1])
        with pytest.raises(StateLost):
            method(*calls[1])
        method.accept_states()
        assert [np.asarray(output).tobytes() for output in method(*calls[1])] == expected[1]


def test_a_call_without_outputs(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that fails after it ran: the next raises StateLost, or starts from the states before it."""
    with pteron.load(programs / "mutable_buffer_host.pte") as program, program.sequence() as apart:
        method = program["forward"]
        x = np.ones((3, method.inputs[0].shape_max[1]), np.float32)
        right = [apart["forward"](x) for _ in range(2)]
        method(x)
        with monkeypatch.context() as patch:
            patch.setattr("pteron.runtime.targets.result", _no_memory)
            with pytest.raises(MemoryError):
                method(x)
        try:
            found = method(x)
        except pteron.StateLost:
            return
        np.testing.assert_array_equal(found[0], right[1][0])


def _no_memory(*_: object) -> None:
    raise MemoryError
