"""Timestamps between the steps of a replay: inside one pass, and as a pass for each."""

from __future__ import annotations

import numpy as np
import pytest

import pteron
from pteron import Device, DeviceError
from pteron.gpu import LaunchTimer, Replay
from pteron.gpu.timing import STAMPS_MAX
from pteron.tools.profile.timing import StampClock, subtract_stamp_cost


@pytest.fixture(scope="module")
def replay(models: object) -> Replay:
    """A decode step of a tiny language model."""
    method = pteron.load(f"{models}/tiny_llama_q4.pte")["forward"]
    assert method.sole_delegate is not None
    inputs = np.full((1, 1), 5, np.int64), np.array([20], np.int64)
    plan, replay = method.sole_delegate.recorded(inputs)
    assert len(plan.launches) == len(replay.launches)
    replay.kept.append(method)
    return replay


@pytest.fixture
def stamping(device: Device) -> Device:
    if "timestamp-query-inside-passes" not in device.adapter.features:
        pytest.skip(f"{device.adapter} has no timestamps inside passes")
    return device


@pytest.mark.parametrize("inside", [True, False])
def test_times_of_steps_add_up_to_the_pass(inside: bool, replay: Replay, stamping: Device) -> None:
    """Without what their stamps cost, the quickest of several runs, in one of several tries: others use a
    software adapter's cores too. What the stamps cost is measured on its own, so nothing makes them equal."""
    clock = StampClock(stamping, len(replay.launches), inside=inside)
    near = pytest.approx(1, rel=0.3 if stamping.adapter.is_cpu else 0.1)
    for _ in range(10):
        runs = [(clock.each(replay), clock.pairs(replay), clock.whole(replay)) for _ in range(12)]
        each, pairs = (np.min([run[part] for run in runs], axis=0).tolist() for part in (0, 1))
        assert (len(each), len(pairs)) == (len(replay.launches), len(replay.launches) - 1)
        assert min(each) > 0
        part = sum(subtract_stamp_cost(each, pairs)) / min(whole for _, _, whole in runs)
        if part == near:
            break
    assert part == near


@pytest.mark.parametrize("inside", [True, False])
def test_the_time_of_a_step_is_its_own(inside: bool, replay: Replay, stamping: Device) -> None:
    """One long step among short ones is found where it stands, alone and in pairs."""
    at, repeats = 4, 500
    steps = [*replay.launches[:at], *replay.launches[-1:] * repeats, *replay.launches[at:]]
    timer = LaunchTimer(stamping, len(steps), inside=inside)
    ends = [*range(1, at + 1), *range(at + repeats, len(steps) + 1)]
    found = timer.run(Replay(steps, replay.kept), ends)
    assert len(found) == len(replay.launches) + 1
    assert np.argmax(found) == at
    in_pairs = timer.run(Replay(steps, replay.kept), [*ends[1::2], len(steps)])
    assert np.argmax(in_pairs) == at // 2


def test_more_steps_than_stamps(replay: Replay, stamping: Device) -> None:
    """They go in several submissions."""
    steps = replay.launches[:1] * (STAMPS_MAX // 2 + 5)
    found = LaunchTimer(stamping, len(steps)).run(Replay(steps, replay.kept))
    assert len(found) == len(steps)


def test_an_adapter_without_timestamps(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    class Adapter:
        features = ("shader-f16",)

        def __str__(self) -> str:
            return "a plain adapter"

    monkeypatch.setattr(device, "adapter", Adapter())
    with pytest.raises(DeviceError, match="a plain adapter has no timestamps inside passes"):
        LaunchTimer(device, 4, inside=True)
    with pytest.raises(DeviceError, match="a plain adapter offers no timestamps"):
        LaunchTimer(device, 4)
