"""How much memory an export will take, and whether the machine has it."""

from __future__ import annotations

import os
from pathlib import Path

from pteron.errors import PteronError
from pteron.llm.export.checkpoint import Checkpoint

# Measured with executorch 1.5.1: what the libraries take in both processes, and how often the weights, as
# float32, are held at the highest (in the model, the traced graph and the program on its way to the file).
LIBRARIES = 1_000_000_000
COPIES = 4.2
_CACHED = ("attention.wk.weight", "attention.wv.weight")  # what their rows give is kept of every token


def estimate(checkpoint: Checkpoint, context: int) -> int:
    """The bytes of memory that exporting takes at its highest, for a cache of so many tokens."""
    per_token = sum(shape[0] for name, shape in checkpoint.shapes.items() if name.endswith(_CACHED))
    return int(LIBRARIES + COPIES * 4 * checkpoint.parameter_count) + 4 * per_token * context


def available() -> int | None:
    """The bytes of memory that a process can have, where the system tells."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text("utf-8").splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                return int(value.split()[0]) * 1024
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def check_memory(checkpoint: Checkpoint, context: int) -> str:
    """A line about the memory needed; an error where there is too little."""
    needed, free = estimate(checkpoint, context), available()
    described = f"{checkpoint.parameter_count / 1e6:,.0f} million parameters, a context of {context:,} tokens"
    line = f"{checkpoint.name}: {described}, about {_gigabytes(needed)} to export"
    if free is not None and needed > free:
        raise PteronError(f"{line}, but only {_gigabytes(free)} of memory are free")
    return line if free is None else f"{line} ({_gigabytes(free)} of memory are free)"


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:,.1f} GB"
