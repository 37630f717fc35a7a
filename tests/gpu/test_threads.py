"""Calls from several threads are served one after the other: right results, whole states, no crash."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from golden import assert_outputs, read_cases
from sketch import Sketch

import pteron
from pteron import DType
from pteron.gpu import Recording
from pteron.graph import Graph, Node, SymInt, Tensor
from pteron.host.tensors import HostResult
from pteron.ops.terms import dim_id
from pteron.runtime import plan_cache
from pteron.runtime.delegate import Delegate
from pteron.runtime.outputs import Wanted
from pteron.runtime.session import Session

THREADS = 4
TIMEOUT = 120


def together(*jobs: Callable[[], object]) -> list[object]:
    """Run jobs in a thread each, all starting at once; the first error of any is raised."""
    start = threading.Barrier(len(jobs))

    def run(job: Callable[[], object]) -> object:
        start.wait(TIMEOUT)
        return job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return [future.result(TIMEOUT) for future in [pool.submit(run, job) for job in jobs]]


@pytest.mark.parametrize("name", ["mlp_dynamic", "two_delegates", "select_position", "host_only"])
def test_one_method(programs: Path, name: str) -> None:
    """Every thread at shapes and positions of its own."""
    cases = read_cases(programs / f"{name}.npz")
    with pteron.load(programs / f"{name}.pte") as program:
        method = program["forward"]

        def run(first: int) -> None:
            for step in range(24):
                case = cases[(first + step) % len(cases)]
                assert_outputs(method(*case.inputs), case.outputs)

        together(*(lambda first=first: run(first) for first in range(THREADS)))
        assert method.counters.calls == THREADS * 24


def test_two_methods_of_one_program(programs: Path) -> None:
    cases = read_cases(programs / "multi_method.npz")
    with pteron.load(programs / "multi_method.pte") as program:

        def run(name: str) -> None:
            for case in (case for case in cases * 10 if case.method == name):
                assert_outputs(program[name](*case.inputs), case.outputs)

        together(*(lambda name=name: run(name) for name in ("encode", "decode") * 2))


def test_programs_on_the_shared_device(programs: Path) -> None:
    """Loading, calling, keeping tensors and closing, all at the same time."""

    def run(name: str) -> None:
        cases = read_cases(programs / f"{name}.npz")
        for _ in range(4):
            with pteron.load(programs / f"{name}.pte") as program:
                for case in cases:
                    kept = program["forward"](*case.inputs, on_gpu=True)
                    assert_outputs(kept, case.outputs)

    together(*(lambda n=n: run(n) for n in ("mlp", "attention_cache", "norms", "mutable_buffer")))


def test_kernels_change_owners(
    programs: Path, device: pteron.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads load, call and close programs that share kernels, which are released with their last user."""
    monkeypatch.setattr(device, "recent_kernel_bytes", 0)
    cases = read_cases(programs / "mlp_dynamic.npz")

    def run() -> None:
        for _ in range(8):
            with pteron.load(programs / "mlp_dynamic.pte", device=device) as program:
                for case in cases[:3]:
                    assert_outputs(program["forward"](*case.inputs), case.outputs)

    together(*[run] * THREADS)


def test_a_state_is_updated_whole(programs: Path) -> None:
    """Each call adds its input to the state: in whatever order, none is lost and none is torn."""
    with pteron.load(programs / "mutable_buffer.pte") as program:
        method = program["forward"]
        one = np.ones((3, 5), np.float32)
        initial = method(np.zeros((3, 5), np.float32))[0] / 2

        def run() -> list[float]:
            seen = []
            for _ in range(25):
                grown = method(one)[0] / 2 - initial
                assert (grown == grown[0, 0]).all()
                seen.append(float(grown[0, 0]))
            return seen

        seen = together(*[run] * THREADS)
        counts = sorted(count for of_thread in seen for count in of_thread)  # type: ignore[attr-defined]
        assert counts == list(range(1, 25 * THREADS + 1))


def test_a_state_on_the_host_is_updated_whole(programs: Path) -> None:
    cases = read_cases(programs / "mutable_buffer_host.npz")
    with pteron.load(programs / "mutable_buffer_host.pte") as program:
        method = program["forward"]
        together(*(lambda: [method(*case.inputs) for case in cases * 5] for _ in range(THREADS)))
        method.reset()
        for case in cases:
            assert_outputs(method(*case.inputs), case.outputs)


@pytest.fixture
def prefix(device: pteron.Device) -> Iterator[Session]:
    """x[:length], whose length is a live integer: each length has a plan, all of the same shapes."""
    x, length, out = Tensor(0, DType.F32, (70, 5)), SymInt(1), Tensor(2, DType.F32, (70, 5))
    node = Node(0, "aten.slice_copy.Tensor", (x, 0, 0, length, 1, out))
    session = Session.of(Graph("prefix", (node,), (x, length), (out,)), device)
    yield session
    session.close()


def test_plans_in_turns_are_made_once(prefix: Session) -> None:
    """However many there are, while they are small."""
    delegate, made = Delegate(prefix), list[int]()
    for _ in range(3):
        for count in range(1, 71):
            delegate.run([np.zeros((70, 5), np.float32), count], [None])
        made.append(prefix.counters.plans)
    assert made[0] >= 70
    assert set(made) == {made[0]}


def test_sequences_of_one_session_share_its_plans(prefix: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads, each with its sequence and inputs, at more lengths than plans are kept."""
    monkeypatch.setattr(plan_cache, "PLAN_BYTES_MAX", 250_000)

    def run(seed: int) -> None:
        delegate, generator = Delegate(prefix), np.random.default_rng(seed)
        for count in range(1, 71):
            given = generator.normal(size=(70, 5)).astype(np.float32)
            (found,) = delegate.run([given, count], [Wanted(DType.F32, on_gpu=False)])
            assert isinstance(found, HostResult)
            np.testing.assert_array_equal(found.numpy(), given[:count])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads change often
    try:
        together(lambda: run(1), lambda: run(2))
    finally:
        sys.setswitchinterval(interval)

    def plans_made(counts: range) -> int:
        made = prefix.counters.plans
        for count in counts:
            Delegate(prefix).run([np.zeros((70, 5), np.float32), count], [None])
        return prefix.counters.plans - made

    assert plans_made(range(69, 71)) == 0  # the latest are kept
    assert plans_made(range(1, 4)) > 0  # the first ones are not


def test_a_method_is_loaded_once(programs: Path) -> None:
    for _ in range(5):
        with pteron.load(programs / "mutable_buffer.pte") as program:
            found = together(*(lambda: program["forward"] for _ in range(THREADS)))
            assert len({id(method) for method in found}) == 1


def test_closing_while_others_call(programs: Path) -> None:
    """A call either gives its result or says that the program is closed."""
    (case, *_) = read_cases(programs / "mlp.npz")
    for _ in range(5):
        program = pteron.load(programs / "mlp.pte")
        method = program["forward"]

        def call(method: pteron.Method = method) -> int:
            for count in range(1000):
                try:
                    assert_outputs(method(*case.inputs), case.outputs)
                except pteron.DeviceError:
                    return count
            return -1

        assert all(count != -1 for count in together(call, call, program.close))
        with pytest.raises(pteron.DeviceError, match="closed"):
            method(*case.inputs)


@pytest.fixture
def norms(device: pteron.Device) -> Iterator[Session]:
    """Many launches, so that binding them takes a while."""
    sketch = Sketch()
    tensors = [sketch.tensor(40, 8) for _ in range(400)]
    for x, out in pairwise(tensors):
        sketch.node("aten._softmax.default", x, 1, False, out)
    session = Session.of(sketch.graph(tensors[:1], tensors[-1:]), device)
    yield session
    session.close()


def test_closing_while_a_plan_is_bound(norms: Session) -> None:
    """A thread that makes a plan ahead ends with the error of a closed program, or with the plan."""
    interval, plans = sys.getswitchinterval(), norms.counters.plans
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(1) as pool:
            made = pool.submit(norms.make_plan, [np.zeros((31, 8), np.float32)])
            while norms.counters.plans == plans and not made.done():
                pass
            norms.close()
            assert made.exception(TIMEOUT) is None or isinstance(made.exception(), pteron.DeviceError)
    finally:
        sys.setswitchinterval(interval)


def test_calls_wait_little_for_a_plan_that_is_bound(norms: Session, device: pteron.Device) -> None:
    """Binding takes the device's lock in pieces."""
    plan = norms.make_plan([np.zeros((31, 8), np.float32)])
    numbers = plan.numbers({dim_id(norms.executable.inputs[0].id, 0): 31})
    assert numbers is not None
    recording = Recording(device, plan, norms._arena, norms._weights, numbers)
    pieces = 1
    while not recording.bind_shared(0.0):
        pieces += 1
    assert pieces == len(plan.launches) + 1
    recording.close()


def test_tensors_are_read_and_freed_anywhere(programs: Path, device: pteron.Device) -> None:
    (case, *_) = read_cases(programs / "mlp.npz")
    with pteron.load(programs / "mlp.pte") as program:
        method = program["forward"]
        (expected,) = method(*case.inputs)
        gc.collect()  # programs that earlier tests left open
        before = device.buffer_bytes

        def run() -> None:
            for _ in range(25):
                (kept,) = method(*case.inputs, on_gpu=True)
                np.testing.assert_array_equal(kept.numpy(), expected)

        together(*[run] * THREADS)
        assert device.buffer_bytes == before


def test_two_devices(programs: Path, device: pteron.Device) -> None:
    cases = read_cases(programs / "mlp_dynamic.npz")
    others = [pteron.Device(device.adapter) for _ in range(2)]
    try:

        def run(own: pteron.Device) -> None:
            with pteron.load(programs / "mlp_dynamic.pte", device=own) as program:
                for case in cases * 4:
                    assert_outputs(program["forward"](*case.inputs), case.outputs)

        together(*(lambda own=own: run(own) for own in (*others, device)))
    finally:
        for other in others:
            other.close()
