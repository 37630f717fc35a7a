"""The parent's side of an isolated program, against a process that sends wrong data, hangs, dies or has
children."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pteron
from pteron import InputError, IsolatedError
from pteron.isolated import program as isolated
from pteron.isolated.process import Process
from pteron.isolated.program import IsolatedProgram

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and groups of processes")

# Answers the first request as a program does, every further one by what the test wrote.
LIAR = """
import json, os, struct, subprocess, sys, time
def read():
    (length,) = struct.unpack("<Q", sys.stdin.buffer.read(8))
    return json.loads(sys.stdin.buffer.read(length))
def say(reply, rest=b""):
    text = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
    sys.stdout.buffer.write(struct.pack("<Q", len(text)) + text + rest)
    sys.stdout.buffer.flush()
read()
say({"methods": ["forward", "backward"]})
while True:
    request = read()
    exec(os.environ["ANSWER"])
"""


@pytest.fixture
def liar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Programs whose process answers by some lines of Python."""
    (tmp_path / "liar.py").write_text(LIAR)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(isolated, "WORKER", "liar")
    opened: list[IsolatedProgram] = []

    def load(answer: str, seconds: float = 60) -> IsolatedProgram:
        monkeypatch.setenv("ANSWER", answer)
        opened.append(pteron.load_isolated("any.pte", seconds=seconds))
        return opened[-1]

    yield load
    for program in opened:
        program.close()


@pytest.mark.parametrize(
    "reply",
    [
        "{'outputs': 'abc'}",
        "{'inputs': [{'kind': 'x', 'dtype': 'y', 'shape_max': 1, 'dynamic': 2, 'value': 3}], 'outputs': 1}",
        "{'outputs': [{'array': ['<f4', [1 << 32]]}]}",  # as much as may come, which is not there
        "{'outputs': [{'array': [[['a', 'O']], [1]]}]}",
    ],
)
def test_invalid_replies(liar: Any, reply: str) -> None:
    method = liar(f"say({reply}); os.close(1); time.sleep(60)")["forward"]
    with pytest.raises(IsolatedError, match="'forward' got an invalid reply and was ended"):
        method.inputs if "inputs" in reply else method()  # both ask
    with pytest.raises(IsolatedError, match="load it again"):
        method()


def test_what_the_process_started_is_ended_with_it(liar: Any) -> None:
    """A child of the process holds the pipe that the owner reads."""
    child = "child = subprocess.Popen(['sleep', '600']); say({'outputs': [child.pid]})"
    program = liar(f"{child} if request['inputs'] else time.sleep(600)", 1)
    (pid,) = program["forward"](1)
    started = time.monotonic()
    with pytest.raises(IsolatedError, match="took longer than 1 s and was ended"):
        program["forward"]()
    assert time.monotonic() - started < 30
    while is_alive(pid):
        assert time.monotonic() - started < 30
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_closed_while_others_wait(liar: Any) -> None:
    program = liar("time.sleep(600)")

    def call() -> None:
        program["forward"](np.zeros(1 << 20))  # more than a pipe takes at once

    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(call) for _ in range(4)]
        time.sleep(0.3)
        program.close()
        for each in waiting:
            with pytest.raises(IsolatedError, match="the program is closed"):
                each.result(30)


# Requests ---------------------------------------------------------------------------------------


def test_a_request_names_its_method(liar: Any) -> None:
    program = liar("say({'outputs': [request['method'], request['act'], len(request['inputs'])]})")
    assert list(program) == ["forward", "backward"]
    for name in program.methods:
        assert (program[name].name, program[name](1, 2)) == (name, (name, "call", 2))
    with pytest.raises(pteron.MethodError, match=r"any\.pte has no method 'other'; it has forward, backward"):
        program["other"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"seconds": float("inf")}, "seconds is inf"),
        ({"seconds": float("nan")}, "seconds is nan"),
        ({"seconds": 0}, "seconds is 0"),
        ({"seconds": "5"}, "seconds is '5'"),
        ({"memory": -5}, "memory is -5"),
        ({"memory": 1 << 70}, "memory is"),
        ({"memory": 1.5}, r"memory is 1\.5"),
        ({"device": 5}, "part of an adapter's name"),
        ({"source": 12}, "by its path or as bytes"),
        ({"source": memoryview(bytes(8))[::2]}, "by its path or as bytes"),
        ({"data": [12]}, "by its path or as bytes"),
    ],
)
def test_refused_before_anything_is_started(
    wrong: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    with pytest.raises(InputError, match=said):
        pteron.load_isolated(**{"source": b"any", **wrong})


def test_what_cannot_be_sent_ends_nothing(liar: Any) -> None:
    method = liar("say({'outputs': [1]})")["forward"]

    class Array:
        def __array__(self, *_: object) -> None:
            raise ZeroDivisionError

    for wrong in ([[1, 2], [3]], 10**5000, "a" * (1 << 26), np.array([object()]), Array(), b"bytes"):
        with pytest.raises(InputError):
            method(wrong)
    assert method() == (1,)


def test_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(IsolatedError, match="cannot start a process"):
        Process("any", "a program", 1)
