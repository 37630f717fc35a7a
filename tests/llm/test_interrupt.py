"""Ctrl-C while a text is told: it ends there, with its figures, wherever the interruption lands."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
@pytest.mark.parametrize("words", [0.0, 1.3, 2.9, 5.1])
def test_generate_ends_cleanly(words: float) -> None:
    """After as many times a few words as that, by this machine's pace: of a story of forty times as many."""
    command = [sys.executable, "-m", "pteron", "generate", "--model", "stories15m", "--prompt", "The cat"]
    with subprocess.Popen(
        [*command, "--max-new-tokens", "240"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    ) as process:
        assert process.stdout is not None
        process.stdout.read(20)  # the prompt and a few words: it is under way
        since = time.monotonic()
        process.stdout.read(20)
        pace = time.monotonic() - since
        time.sleep(words * pace)
        process.send_signal(signal.SIGINT)
        rest, figures = process.communicate(timeout=30)
    if 40 * pace < 0.5 and not rest.decode().endswith("…\n"):
        pytest.skip("this machine had told the story before it was interrupted")
    assert process.returncode == 130
    assert rest.decode().endswith("…\n")
    assert b"tokens/s" in figures
    assert b"Traceback" not in figures
