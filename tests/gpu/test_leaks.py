"""Loads, calls at more live shapes than plans are kept for, failures, closes: memory stays level."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from weakref import ref

import numpy as np
import pytest
from golden import assert_outputs, read_cases
from sketch import Sketch
from wgpu.backends.wgpu_native._helpers import generate_report

import pteron
from pteron import Device
from pteron.dtypes import DType, Storage
from pteron.gpu import recording
from pteron.gpu.commands import Replay
from pteron.host.tensors import View
from pteron.runtime import plan_cache
from pteron.runtime.session import Session

# Prints, round by round: objects that wgpu's library keeps, bytes of buffers, memory of the process.
ROUNDS = """
import gc, os, sys
from contextlib import suppress
from pathlib import Path
import numpy as np
import pteron
from pteron import Device
from pteron.runtime import plan_cache
from wgpu.backends.wgpu_native._helpers import generate_report

folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
plan_cache.PLAN_BYTES_MAX = 4 << 20
device = Device.open()
random = np.random.default_rng(1)
damaged = bytearray((folder / "models" / "tiny_llama_q4.pte").read_bytes())
damaged[len(damaged) // 3 :] = bytes(len(damaged) - len(damaged) // 3)

def forward(method, length, position):
    return method(random.integers(0, 500, (1, length)), np.array([position]))

def one_round():
    with pteron.load(folder / "models" / "tiny_llama_q4.pte", device=device) as program:
        method = program["forward"]
        for length in random.permutation(31)[:6]:
            method.reset()
            forward(method, int(length) + 1, 0)
        other = program.sequence()
        (kept,) = other["forward"](random.integers(0, 500, (1, 3)), np.array([0]), on_gpu=True)
        kept.numpy()
        with suppress(pteron.PteronError):
            forward(method, 31, 10**6)
        with suppress(pteron.PteronError):
            method(np.zeros((1, 1), np.float32), np.array([0]))
    left = pteron.load(folder / "programs" / "mlp_dynamic.pte", device=device)
    left["forward"]  # neither called nor closed
    with suppress(pteron.PteronError):
        pteron.load(bytes(damaged), device=device)["forward"]

for number in range(rounds):
    one_round()
    gc.collect()
    hub = generate_report()["hub"]
    kept = {name: each["kept"] for name, each in hub.items() if each["kept"]}
    kept.pop("computePipelines", None)  # those asked for last
    resident = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    staged = kept.pop("buffers", 0)
    print(staged, sum(kept.values()), device.buffer_bytes, len(device.uploads), resident, sep=",")
"""


@pytest.mark.long
def test_memory_stays_level(models: Path) -> None:
    rounds = 16
    command = [sys.executable, "-c", ROUNDS, str(models.parent), str(rounds)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert ran.returncode == 0, ran.stderr
    staged, objects, buffers, uploads, resident = zip(
        *(map(int, line.split(",")) for line in ran.stdout.splitlines()), strict=True
    )
    assert len(objects) == rounds
    assert set(buffers) == {0}
    assert set(uploads) == {0}
    assert len(set(objects[2:])) == 1, objects
    assert max(staged) <= 8  # that a device keeps for the next readbacks
    assert resident[-1] - resident[rounds // 2] < 3 << 20, resident


def test_bindings_of_buffers_that_change_are_not_left(device: Device) -> None:
    """Replays over other buffers at every call: bind groups of the latest are kept."""
    sketch = Sketch()
    x, out = sketch.tensor(5), sketch.tensor(5)
    sketch.node("aten.relu.default", x, out)
    session, given = Session.of(sketch.graph([x], [out]), device), []
    states = session.states()
    for _ in range(200):
        buffer = device.create_buffer(20, "input")
        session.bind_inputs([View(buffer, 0, (5,), DType.F32, Storage.F32)], states, {})
        device.free(buffer)
        given.append(ref(buffer))
        del buffer
    assert sum(each() is not None for each in given) < 100
    session.close()


def test_few_replays_of_a_sequence_are_kept(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan for many sizes has a replay for each grid; its bindings are those of the first."""
    monkeypatch.setattr(recording, "_LAUNCHES_KEPT", 8)
    sketch = Sketch()
    x, out = sketch.tensor(5000, 64), sketch.tensor(5000, 64)
    sketch.node("aten.relu.default", x, out)
    session, groups = Session.of(sketch.graph([x], [out]), device), set()
    states = session.states()
    before = living(Replay)
    for rows in range(4100, 5000, 16):
        found, numbers = session.find_recording([np.zeros((rows, 64), np.float32)])
        found.refresh(numbers)
        found.replay_states(states)
        groups.add(found.replay(states).launches[0][1])
    assert session.counters.plans <= 4
    assert living(Replay) - before <= 4 * 8
    assert len(groups) <= 4
    session.close()


def living(kind: type) -> int:
    gc.collect()
    return sum(isinstance(each, kind) for each in gc.get_objects())


def test_calls_recorded_ahead_are_not_left(programs: Path, device: Device) -> None:
    """wgpu's library never frees commands that are not submitted: shapes that come and go leave but a few."""
    with pteron.load(programs / "mlp_dynamic.pte", device=device) as program:
        method = program["forward"]
        rows, width = method.inputs[0].shape_max
        assert rows > 7
        before = generate_report()["hub"]["commandBuffers"]["kept"]
        for turn in range(120):
            x = np.full((1 + turn % 7, width), turn, np.float32)
            answers = [method(x)[0] for _ in range(3)]
            assert (answers[0] == answers[1]).all()
            assert (answers[0] == answers[2]).all()
        assert generate_report()["hub"]["commandBuffers"]["kept"] - before <= 5


def test_a_program_that_is_not_closed(programs: Path, device: Device) -> None:
    """wgpu-native never frees a command buffer that is not submitted."""
    if device.library.name != "wgpu-native":
        pytest.skip("wgpu-native's report counts its own command buffers alone")

    def kept() -> int:
        return int(generate_report()["hub"]["commandBuffers"]["kept"])

    gc.collect()
    before = kept()
    program = pteron.load(programs / "mutable_buffer.pte", device=device)
    for _ in range(3):
        program["forward"](np.ones((3, 5), np.float32))
    assert kept() == before + 1  # the prerecorded call
    del program
    gc.collect()
    assert kept() == before


@pytest.fixture
def no_recent_kernels(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only plans own kernels."""
    monkeypatch.setattr(device, "recent_kernel_bytes", 0)
    gc.collect()
    device.release_kernels()


def kernels_of(device: Device) -> int:
    """How many compiled kernels there are."""
    gc.collect()
    device.poll(wait=True)
    if device.library.name != "wgpu-native":
        return len(device._pipelines)
    return int(generate_report()["hub"]["computePipelines"]["kept"])


@pytest.mark.usefixtures("no_recent_kernels")
def test_a_kernel_is_released_with_the_last_program_that_uses_it(programs: Path, device: Device) -> None:
    x = np.ones((3, 7), np.float32)
    before = kernels_of(device)
    first, second = (pteron.load(programs / "mlp_dynamic.pte", device=device) for _ in range(2))
    (expected,) = first["forward"](x)
    used = kernels_of(device)
    assert used - before == first["forward"].counters.kernels > 0
    compiled = device.compiled
    np.testing.assert_array_equal(second["forward"](x)[0], expected)
    assert second["forward"].counters.kernels == 0
    first.close()
    assert kernels_of(device) == used
    np.testing.assert_array_equal(second["forward"](x)[0], expected)
    assert device.compiled == compiled
    second.close()
    assert kernels_of(device) == before


@pytest.mark.usefixtures("no_recent_kernels")
def test_kernels_of_plans_that_were_forgotten(
    programs: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One plan is kept, and the kernels of no other."""
    monkeypatch.setattr(plan_cache, "PLAN_BYTES_MAX", 0)
    before = kernels_of(device)
    with pteron.load(programs / "vision.pte", device=device) as program:
        method, counts = program["forward"], list[int]()
        for width in (16, 11, 16, 7):
            method(np.ones((1, 3, 17, width), np.float32))
            counts.append(kernels_of(device) - before)
        assert max(counts) < 2 * min(counts)
        assert method.counters.plans >= 5  # two at load, one for each change
    assert kernels_of(device) == before


def test_programs_in_turns_compile_once(programs: Path, device: Device) -> None:
    names = ["mlp_dynamic", "norms", "mutable_buffer"]

    def one_round() -> int:
        before = device.compiled
        for name in names:
            with pteron.load(programs / f"{name}.pte", device=device) as program:
                for case in read_cases(programs / f"{name}.npz"):
                    assert_outputs(program["forward"](*case.inputs), case.outputs)
        return device.compiled - before

    one_round()
    assert [one_round(), one_round()] == [0, 0]
