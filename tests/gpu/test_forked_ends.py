"""A forked child calls neither wgpu's library nor a driver, up to its very end, however it ends."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "on_exit"),
    reason="walls are put up as on Linux, and glibc alone lets exit() end at once",
)
SCRIPT = """
import ctypes, gc, os, sys, threading
sys.path.insert(0, {tests!r})
import numpy as np
import pteron
from pteron.gpu.native import lib
from walls import put_up_walls

program = pteron.load({program!r})
method, x = program["forward"], np.ones((3, 7), np.float32)
for _ in range(4):  # the next call is recorded
    (expected,) = method(x)
(kept,) = method(x, on_gpu=True)
calling = True

def call():
    while calling:
        method(x)

def drops():
    global program, method, kept
    program.close()
    del program, method, kept
    gc.collect()

ends = {{
    "falls off its end": lambda: None,
    "leaves by sys.exit": lambda: sys.exit(7),
    "fails": lambda: 1 // 0,
    "leaves by exit()": lambda: ctypes.CDLL(None).exit(7),
    "drops all it has": drops,
    "calls the library": lib.wgpuGetVersion,
}}
thread = threading.Thread(target=call, daemon=True)
thread.start()
for name, end in ends.items():
    child = os.fork()
    if child == 0:
        assert put_up_walls()
        print("says", end="")  # into a buffer, which Python empties at the end
        end()
        break
    print(name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    calling = False
    thread.join()
    assert (method(x)[0] == expected).all()
    print("the parent goes on")
"""


@pytest.mark.long
def test_children_up_to_their_end(programs: Path) -> None:
    script = SCRIPT.format(tests=str(Path(__file__).parents[1]), program=str(programs / "mlp.pte"))
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
    ended = subprocess.run(
        [sys.executable, "-c", script], env=buffered, capture_output=True, text=True, check=False, timeout=100
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == [
        "saysfalls off its end 0",
        "saysleaves by sys.exit 7",
        "saysfails 1",
        "leaves by exit() 7",
        "saysdrops all it has 0",
        "calls the library -11",
        "the parent goes on",
    ]
