"""Programs in processes of their own: the same results, and what ends such a process is an error here."""

from __future__ import annotations

import gc
import io
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden import assert_outputs, read_cases

import pteron
from pteron.cli import main
from pteron.isolated import wire

X = np.zeros((1, 7), np.float32)  # what mlp_dynamic takes
POSIX = pytest.mark.skipif(os.name != "posix", reason="signals and resource limits of POSIX")


@pytest.fixture(scope="module")
def shared(programs: Path) -> Iterator[pteron.IsolatedProgram]:
    """mlp_dynamic in a process that several tests call."""
    with pteron.load_isolated(programs / "mlp_dynamic.pte") as program:
        yield program


@pytest.mark.long(every=2)
@pytest.mark.parametrize("name", ["external_weights", "mlp_dynamic", "dtypes", "scalars"])
def test_the_same_results(name: str, programs: Path) -> None:
    data = sorted(programs.glob(f"{name}.*.ptd"))
    with pteron.load_isolated(programs / f"{name}.pte", data) as program:
        method = program["forward"]
        with pteron.load(programs / f"{name}.pte", data) as here:
            assert method.inputs == here["forward"].inputs
            assert method.outputs == here["forward"].outputs
        for case in read_cases(programs / f"{name}.npz"):
            assert_outputs(method(*case.inputs), case.outputs)


@pytest.mark.long
def test_from_bytes_and_by_several_methods(programs: Path) -> None:
    with pteron.load_isolated((programs / "multi_method.pte").read_bytes()) as program:
        assert len(program) == len(list(program)) > 1
        assert all(name in program for name in program.methods)
        with pytest.raises(pteron.MethodError, match="has no method 'other'"):
            program["other"]
        method = program["encode"]
    program.close()
    with pytest.raises(pteron.IsolatedError, match="the program is closed"):
        method(X)


def test_states_are_kept_and_reset(programs: Path) -> None:
    with pteron.load_isolated(programs / "mutable_buffer.pte") as program:
        method = program["forward"]
        inputs = [np.ones(spec.shape_max, np.float32) for spec in method.inputs]
        first, second = method(*inputs), method(*inputs)
        assert not all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
        method.reset()
        np.testing.assert_equal(method(*inputs), first)


# What goes wrong --------------------------------------------------------------------------------


@pytest.mark.long
def test_errors_are_those_of_the_program(shared: pteron.IsolatedProgram, tmp_path: Path) -> None:
    method = shared["forward"]
    with pytest.raises(pteron.ShapeError, match="rank"):
        method(np.zeros(3, np.float32))
    with pytest.raises(pteron.InputError, match="not a dict"):
        method({})
    assert method(X)  # and it goes on
    (tmp_path / "no.pte").write_bytes(b"not a program")
    with pytest.raises(pteron.FormatError, match=r"no\.pte"):
        pteron.load_isolated(tmp_path / "no.pte")
    with pytest.raises(pteron.PteronError, match=r"missing\.pte"):
        pteron.load_isolated(tmp_path / "missing.pte")


@pytest.mark.long
@POSIX
def test_a_crash_is_an_error_until_it_is_loaded_again(programs: Path) -> None:
    path, x = programs / "mlp_dynamic.pte", X
    program = pteron.load_isolated(path)
    method = program["forward"]
    (before,) = method(x)
    os.kill(program._process.popen.pid, signal.SIGSEGV)
    with pytest.raises(pteron.IsolatedError, match="'forward' ended its process by SIGSEGV"):
        method(x)
    with pytest.raises(pteron.IsolatedError, match="by SIGSEGV; load it again"):
        method.reset()
    program.close()
    with pteron.load_isolated(path) as again:
        np.testing.assert_array_equal(again["forward"](x)[0], before)


@pytest.mark.long
@POSIX
def test_a_call_that_does_not_end(programs: Path) -> None:
    program = pteron.load_isolated(programs / "mlp_dynamic.pte")
    program._process.seconds = 0.5
    os.kill(program._process.popen.pid, signal.SIGSTOP)
    started = time.monotonic()
    with pytest.raises(pteron.IsolatedError, match=r"took longer than 0.5 s and was ended"):
        program["forward"](X)
    assert time.monotonic() - started < 10
    assert program._process.popen.returncode is not None


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_DATA counts on Linux alone")
def test_too_much_memory(programs: Path) -> None:
    path = programs / "mlp_dynamic.pte"
    with pytest.raises(pteron.PteronError):
        # A driver that finds no memory to say so waits for its deadline.
        pteron.load_isolated(path, memory=1 << 20, seconds=8)["forward"](X)
    with pteron.load_isolated(path, memory=1 << 32) as program:
        assert program["forward"](X)


@pytest.mark.long
def test_a_dropped_program_ends_its_process(programs: Path) -> None:
    program = pteron.load_isolated(programs / "mlp_dynamic.pte")
    process = program._process.popen
    del program
    gc.collect()
    deadline = time.monotonic() + 20  # the timer of the last call holds the program until its thread ends
    while process.returncode is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.returncode is not None


@POSIX
@pytest.mark.long
def test_it_ends_with_its_owner(programs: Path) -> None:
    script = (
        "import os, pteron\n"
        f"program = pteron.load_isolated({str(programs / 'mlp_dynamic.pte')!r})\n"
        "print(program._process.popen.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    owner = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=False)
    deadline = time.monotonic() + 30
    while _is_alive(int(owner.stdout)):
        assert time.monotonic() < deadline, "the process outlives its owner"
        time.sleep(0.1)


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_several_threads(shared: pteron.IsolatedProgram) -> None:
    wrong: list[object] = []
    method = shared["forward"]
    rows = [np.full((1, 7), value, np.float32) for value in range(6)]
    expected = [method(x)[0] for x in rows]

    def call(index: int) -> None:
        for _ in range(10):
            if not np.array_equal(method(rows[index])[0], expected[index]):
                wrong.append(index)

    threads = [threading.Thread(target=call, args=(index,)) for index in range(len(rows))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# Messages ---------------------------------------------------------------------------------------


def test_messages_keep_values() -> None:
    values = [None, True, 2**70, 0.1, float("inf"), "ü", [1, [2]], np.float64(3), np.zeros((2, 0), np.int8)]
    arrays = [np.arange(6, dtype=np.uint16).reshape(2, 3).T, np.array(True), np.ones(3, np.float16)]
    arrays += [
        np.arange(9)[::-2],
        np.broadcast_to(np.float32(0.5), (2, 3)),
        np.arange(8.0).reshape(2, 4)[:, 1],
    ]
    stream = io.BytesIO()
    wire.send(stream, wire.pack({"values": values, "nested": {"arrays": arrays}}))
    stream.seek(0)
    found = wire.receive(stream)
    assert found is not None
    np.testing.assert_equal(found, {"values": values, "nested": {"arrays": arrays}})
    assert found["nested"]["arrays"][1].dtype == np.bool_
    assert wire.receive(stream) is None


def framed(header: object, rest: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + rest


def test_what_is_no_message() -> None:
    for message in (
        b"\x01\x02",
        struct.pack("<Q", 2**63),
        struct.pack("<Q", 100) + b"{}",
        framed(b"not json"),
        framed([1]),
        framed(b"[" * 100_000),
        framed({"x": {"array": ["|O", [1]]}}, bytes(8)),
        framed({"x": {"array": ["<f4", [-1]]}}),
        framed({"x": {"array": ["<f4", [2**60]]}}),
        framed({"x": {"array": ["<f4", ["a"]]}}),
        framed({"x": {"array": "<f4"}}),
        framed({"x": {"array": ["<f4", [4]]}}, bytes(15)),
    ):
        with pytest.raises(wire.WireError):
            wire.receive(io.BytesIO(message))


def test_what_cannot_be_sent() -> None:
    things: list[Any] = [object(), np.array([object()]), np.array(["text"])]
    for thing in things:
        with pytest.raises(wire.WireError):
            wire.pack({"x": thing})


# The command ------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_command(programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = str(programs / "mlp_dynamic.pte")
    assert main(["run", program, "--isolated", "60", "--output", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "output_0.npy").exists()
    assert main(["run", program, "--isolated", "0.01"]) == 1
    assert capsys.readouterr().err.strip() == f"pteron: {program}: took longer than 0.01 s and was ended"
