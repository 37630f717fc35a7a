"""Ctrl-C during a generation: it ends there with its figures, and the next generation is right."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from byte_tokenizer import ByteTokenizer
from interruption import is_interrupted, moments

from pteron import Device
from pteron.llm import LLM

MODELS = Path(__file__).parents[1] / "fixtures" / "models"


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
@pytest.mark.parametrize("words", [0.0, 1.3, 2.9, 5.1])
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
        pytest.skip("this machine had told the story before it was interrupted")
    assert process.returncode == 130
    assert rest.decode().endswith("…\n")
    assert b"tokens/s" in figures
    assert b"Traceback" not in figures


@pytest.mark.skipif(sys.platform == "win32", reason="uses a timer signal")
def test_the_next_generation_is_right(device: Device) -> None:
    prompts = [1, *range(40, 80)], [1, *range(40, 60), 200, 90, 17]
    with LLM(MODELS / "tiny_llama_q4.pte", ByteTokenizer(), device=device) as llm:

        def generate(ids: list[int]) -> list[int]:
            return [piece.token for piece in llm.generate(ids, max_new_tokens=5, stop_ids=())]

        def generate_all() -> list[list[int]]:
            llm.reset()
            return [generate(ids) for ids in prompts]

        expected, interrupted = generate_all(), 0
        for seconds in moments(generate_all):
            interrupted += is_interrupted(generate_all, seconds)
            assert [generate(ids) for ids in prompts] == expected
        assert interrupted
