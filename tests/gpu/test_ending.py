"""A process exits cleanly while daemon threads are still inside method calls."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys, threading, time
import numpy as np
import pteron

class Slow:
    def __del__(self, sleep=time.sleep):
        sleep(0.3)  # while Python ends

slow = Slow()
method = pteron.load(sys.argv[1])["forward"]
inputs = [np.ones(each.shape_max, np.float32) for each in method.inputs]
method(*inputs)

def call():
    while True:
        method(*inputs)

for _ in range(3):
    threading.Thread(target=call, daemon=True).start()
time.sleep(0.5)
"""


@pytest.mark.long
def test_threads_that_call_a_method(programs: Path) -> None:
    """One of two delegates hands its output to the other on the GPU: nothing frees it under a call."""
    command = [sys.executable, "-c", SCRIPT, str(programs / "attention.pte")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (ended.returncode, ended.stderr) == (0, "")
