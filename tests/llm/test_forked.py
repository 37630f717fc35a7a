"""A process forked while other threads use a model gets an error instead of waiting for a lock that no
thread of the child can release."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pteron

SOURCES = Path(pteron.__file__).parent
MODEL = Path(__file__).parents[1] / "fixtures" / "models" / "tiny_llama_q4.pte"
SCRIPT = f"""
import ctypes, os, sys, threading
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}
from byte_tokenizer import ByteTokenizer
from walls import put_up_walls
from pteron import DeviceError
from pteron.llm import LLM

llm = LLM({str(MODEL)!r}, ByteTokenizer())
expected = [piece.token for piece in llm.generate([1, 2, 3], max_new_tokens=4)]
held, done = threading.Event(), threading.Event()

def hold():  # as a thread does that starts a stream
    with llm.pool._lock:
        held.set()
        done.wait(60)

thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if child == 0:
    leave = sys.exit if hasattr(ctypes.CDLL(None), "on_exit") else os._exit  # as docs/reliability.md has it
    if sys.platform == "linux":
        put_up_walls()
    try:
        list(llm.generate([1, 2, 3], max_new_tokens=4))
    except DeviceError as error:
        leave(0 if "spawn" in str(error) else 2)
    leave(1)
code = os.waitpid(child, 0)[1]
done.set()
thread.join()
assert code == 0, code
assert [piece.token for piece in llm.generate([1, 2, 3], max_new_tokens=4)] == expected
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_does_not_wait_for_a_stream() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=100)


def test_locks_are_open_in_forked_children() -> None:
    """Every lock in the sources is reset in a forked child, or listed here because a child never reaches it:
    its call is refused earlier, or it has no such thread."""
    made = {
        str(file.relative_to(SOURCES)): len(found)
        for file in sorted(SOURCES.rglob("*.py"))
        if (
            found := re.findall(
                r"threading\.R?Lock\(|Condition\(|=threading\.R?Lock\b", file.read_text("utf-8")
            )
        )
    }
    in_commands = {"cli/progress.py": 2}  # which fork nothing
    assert made == in_commands | {
        "gpu/fork.py": 1,
        "llm/engine/notify.py": 1,  # over a lock of gpu/fork.py
        "isolated/process.py": 1,
    }
