"""The demo: a small language model that ships with Pteron tells a story on the default adapter."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Generator
from pathlib import Path

from pteron.llm import LLM, Sampling
from pteron.llm.models import fetch
from pteron.tools.text import human_bytes

PROMPT = "Once upon a time"


def demo_text(adapter: str | None, tokens: int, seed: int) -> Generator[str, None, None]:
    """The demo's output, piece by piece."""
    with LLM(fetch("stories15m"), device=adapter) as llm:
        method = llm.model.method
        size = human_bytes(llm.program.file.size)
        yield f"stories15M, a language model in 4 bits ({size}), on {llm.model.device.adapter}\n\n{PROMPT}"
        before = method.counters
        sampling = Sampling(temperature=0.7, top_p=0.9, seed=seed)
        for piece in llm.generate(PROMPT, max_new_tokens=tokens, sampling=sampling):
            yield piece.text
        after, took = method.counters, llm.statistics
        each = (after.dispatches - before.dispatches) / took.new_tokens
        command = _command()
        memory = human_bytes(sum(method.gpu_bytes.values()))
        yield (
            f"\n\n{took.new_tokens} tokens at {took.decode_rate:.1f} tokens/s, each sampled on the GPU: "
            f"{each:.0f} dispatches of one delegate, nothing on the host; {memory} of GPU memory.\n\n"
            f'Try next     {command} generate --model stories15m --prompt "The cat" --temperature 0.8\n'
            f"             {command} inspect your-model.pte\n"
            f"             {command} chat --model smollm2   (exported once; needs pip install '.[export]')\n"
        )


def _command() -> str:
    """The command that starts Pteron from the current folder."""
    beside_python = Path(sys.executable).with_name("pteron")
    if shutil.which("pteron") or not beside_python.exists():
        return "pteron"
    return os.path.relpath(beside_python)
