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


def estimate(checkpoint: Checkpoint) -> int:
    """The bytes of memory that exporting takes at its highest."""
    return int(LIBRARIES + COPIES * 4 * checkpoint.parameter_count)


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


def check_memory(checkpoint: Checkpoint) -> str:
    """A line about the memory needed; an error where there is too little."""
    needed, free = estimate(checkpoint), available()
    millions = checkpoint.parameter_count / 1e6
    line = f"{checkpoint.name}: {millions:,.0f} million parameters, about {_gigabytes(needed)} to export"
    if free is not None and needed > free:
        raise PteronError(f"{line}, but only {_gigabytes(free)} of memory are free")
    return line if free is None else f"{line} ({_gigabytes(free)} of memory are free)"


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
