"""Signals and exits during a generation: it ends cleanly, and the next generation is right."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from interruption import is_interrupted, moments
from llm_fixtures import TINY, A, B

from pteron.llm import LLM


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
@pytest.mark.long(every=3)
@pytest.mark.parametrize("words", [1.3, 0.0, 5.1])
def test_generate_ends_cleanly(words: float) -> None:
    """Interrupts after `words` times the duration of 20 characters. A story takes about 40 times that."""
    command = [sys.executable, "-m", "pteron", "generate", "--model", "stories15m", "--prompt", "The cat"]
    with subprocess.Popen(
        [*command, "--max-new-tokens", "240"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    ) as process:
        assert process.stdout is not None
        process.stdout.read(20)  # the prompt and a few words: it is generating
        since = time.monotonic()
        process.stdout.read(20)
        pace = time.monotonic() - since
        time.sleep(words * pace)
        process.send_signal(signal.SIGINT)
        rest, figures = process.communicate(timeout=30)
    if 40 * pace < 0.5 and not rest.decode().endswith("…\n"):
        pytest.skip("the story was complete before the signal arrived")
    assert process.returncode == 130
    assert rest.decode().endswith("…\n")
    assert b"tokens/s" in figures
    assert b"Traceback" not in figures


def generate(llm: LLM, ids: list[int]) -> list[int]:
    return [piece.token for piece in llm.generate(ids, max_new_tokens=5, stop_ids=())]


@pytest.mark.skipif(sys.platform == "win32", reason="uses a timer signal")
def test_the_next_generation_is_right(llm: LLM) -> None:
    def generate_all() -> list[list[int]]:
        llm.reset()
        return [generate(llm, ids) for ids in (A, B)]

    expected, interrupted = generate_all(), 0
    for seconds in moments(generate_all):
        interrupted += is_interrupted(generate_all, seconds)
        assert [generate(llm, ids) for ids in (A, B)] == expected
    assert interrupted


ENDING = """
import sys, threading, time
sys.path[:0] = [sys.argv[1]]
from byte_tokenizer import ByteTokenizer
from pteron.llm import LLM

llm = LLM(sys.argv[2], ByteTokenizer())

def work():
    while True:
        list(llm.generate([1, 40, 50], max_new_tokens=20, stop_ids=()))

left = llm.generate([1, 40], max_new_tokens=9, stop_ids=())
next(left)
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
"""


@pytest.mark.long
def test_the_end_of_a_process_whose_threads_generate() -> None:
    """The process exits cleanly while daemon threads generate: Python ends them at any point."""
    command = [sys.executable, "-c", ENDING, str(Path(__file__).parent), str(TINY)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
