"""Commands as processes: Ctrl-C, a full disk, no home, an unfinished stream, a locale that is not UTF-8."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

# What follows the line is Pteron's: what Python does before, no program can change.
START = """
import sys, pteron.__main__
print("started", flush=True)
raise SystemExit(pteron.__main__.main())
"""
TIMES = 2  # that each command is interrupted


@pytest.fixture(autouse=True)
def _sigint_is_not_ignored() -> Iterator[None]:
    """Shells let background jobs, and the processes that they start, ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.long(every=5)
@pytest.mark.parametrize("command", ["info", "inspect", "run", "demo", "isolated"])
def test_ctrl_c_at_any_moment(command: str, programs: Path) -> None:
    program = str(programs / "mlp.pte")
    arguments = {
        "info": ["info"],
        "inspect": ["inspect", program],
        "run": ["run", program, "--repeat", "100"],
        "demo": ["demo", "--max-new-tokens", "8"],
        "isolated": ["run", program, "--isolated"],
    }[command]
    whole, *_ = _interrupted(arguments, None)
    codes = []
    for index in range(TIMES):
        delay = whole * random.Random(index).random()
        _, code, said = _interrupted(arguments, delay)
        assert said == b"", f"after {delay:.3f} s of {whole:.3f}"
        codes.append(code)
    assert set(codes) <= {0, 130}
    assert 130 in codes


def _interrupted(arguments: list[str], delay: float | None) -> tuple[float, int, bytes]:
    """A command that all processes of its terminal are interrupted in: seconds, exit code, what it said."""
    process = subprocess.Popen(
        [sys.executable, "-c", START, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    began = time.monotonic()
    if delay is not None:
        time.sleep(delay)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    return time.monotonic() - began, process.returncode, without_notes(said)


def without_notes(said: bytes) -> bytes:
    """Without the line about a machine that has no GPU."""
    return b"".join(line for line in said.splitlines(keepends=True) if b"no GPU was found" not in line)


def test_ctrl_c_that_a_library_swallows() -> None:
    """As NumPy does while it is imported."""
    code = (
        "import signal, pteron.__main__ as command, pteron.cli as process\n"
        "def swallowed():\n"
        "    try: signal.raise_signal(signal.SIGINT)\n"
        "    except KeyboardInterrupt: pass\n"
        "    raise ImportError('could not import module datetime')\n"
        "process.run_process = swallowed\n"
        "raise SystemExit(command.main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert (done.returncode, done.stderr) == (130, b"")


@pytest.mark.long
def test_a_disk_without_room_for_outputs(programs: Path, tmp_path: Path) -> None:
    command = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", sys.executable, "-m", "pteron"]
    done = subprocess.run(
        [*command, "run", str(programs / "mlp.pte"), "--output", str(tmp_path)], capture_output=True
    )
    assert done.returncode == 1
    said = without_notes(done.stderr)
    assert said.startswith(b"pteron: the outputs cannot be written: ")
    assert said.count(b"\n") == 1


def test_a_disk_without_room_for_the_cache(programs: Path, tmp_path: Path) -> None:
    """Commands work, and leave no partial files."""
    command = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", sys.executable, "-m", "pteron"]
    done = subprocess.run(
        [*command, "run", str(programs / "mlp.pte")],
        capture_output=True,
        env={**os.environ, "PTERON_CACHE": str(tmp_path)},
    )
    assert (done.returncode, without_notes(done.stderr)) == (0, b"")
    assert list(tmp_path.iterdir())
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


# As in a container: no HOME, and a user that the system does not know.
HOMELESS = """
import os, pwd
def unknown(number): raise KeyError(number)
pwd.getpwuid = unknown
os.environ.pop("HOME"), os.environ.pop("PTERON_CACHE", None)
from pteron.__main__ import main
raise SystemExit(main())
"""


def test_without_a_home(programs: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HOMELESS, "run", str(programs / "mlp.pte")], capture_output=True, cwd=tmp_path
    )
    assert (done.returncode, without_notes(done.stderr)) == (0, b"")
    assert not list(tmp_path.iterdir())


UNFINISHED = """
from pteron.llm import LLM
from pteron.llm.names.models import fetch
llm = LLM(fetch("stories15m"))
stream = llm.generate("Once", max_new_tokens=50)
print(next(stream).text)
"""


@pytest.mark.long
def test_an_unfinished_stream_at_the_end() -> None:
    done = subprocess.run([sys.executable, "-c", UNFINISHED], capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b" upon\n", b"")


# A locale that is not UTF-8, as on Windows in the West --------------------------------------------


# Reading or writing text without naming its encoding is an error in Pteron's own modules.
STRICT = """
import warnings
warnings.filterwarnings("error", category=EncodingWarning, module=r"pteron(\\.|$)")
from pteron.__main__ import main
raise SystemExit(main())
"""


@pytest.mark.long(every=5)
@pytest.mark.parametrize(
    ("command", "encoding"),
    [("inspect", "cp1252"), ("info", "cp1252"), ("run", "cp1252"), ("demo", "cp1252"), ("run", "latin-1")],
)
def test_a_command_in_a_foreign_locale(command: str, encoding: str, programs: Path) -> None:
    program = str(programs / "mlp_dynamic.pte")
    arguments = {
        "info": ["info"],
        "inspect": ["inspect", program, "--graph"],
        "run": ["run", program, "--repeat", "1"],
        "demo": ["demo", "--max-new-tokens", "4"],
    }[command]
    foreign = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, "-X", "warn_default_encoding", "-c", STRICT, *arguments],
        capture_output=True,
        env={**os.environ, **foreign},
    )
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode(encoding)
    sign = {"info": "pteron ", "inspect": "f32[<=17, 7]", "run": "f32[<=17, 7]", "demo": "Once upon a time"}
    assert sign[command] in text
    assert "\\u" not in text
