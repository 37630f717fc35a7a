"""A program -> an error if it cannot fit into the memory of the adapter that it is for."""

from __future__ import annotations

from pathlib import Path

from pteron.errors import OutOfMemory
from pteron.names.model_files import program_file
from pteron.tools.estimate.estimates import estimate
from pteron.tools.estimate.gpus import gpu_of_adapter
from pteron.tools.local_adapter import find_adapter

_CLOSE = 0.5  # a file below this part of the memory is not planned: it fits


def check_fits(path: Path, adapter: str | None = None) -> None:
    """Raise OutOfMemory if the weights of a program and the memory of a call exceed the memory of the GPU
    that the table has for the adapter. KV caches do not count: options change their size."""
    program = program_file(path) if path.is_dir() else path
    gpu = gpu_of_adapter(find_adapter(adapter).adapter or "")
    if gpu is None or gpu.memory_bytes is None or program.suffix != ".pte":
        return
    if program.stat().st_size < _CLOSE * gpu.memory_bytes:
        return
    (found,) = estimate(program, [gpu]).gpus
    needed = found.memory - found.states
    if needed > gpu.memory_bytes:
        raise OutOfMemory(
            f"{program} needs {needed:,} bytes on a GPU, without KV caches; {gpu.name} has "
            f"{gpu.memory_bytes:,}: choose a smaller model or quantisation, or another GPU (--device)"
        )
