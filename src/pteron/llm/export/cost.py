"""What an export costs: the memory it needs, checked before it starts, and its stages with their usual
times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from pteron.errors import PteronError
from pteron.llm.export.checkpoint import Checkpoint
from pteron.system import free_memory

# Measured with executorch 1.5.1: bytes of the libraries in both processes, and how many float32 copies of the
# weights exist at the peak (in the model, the traced graph and the program).
LIBRARIES = 1_000_000_000
COPIES = 4.2
_CACHED = ("attention.wk.weight", "attention.wv.weight")  # the KV cache holds their outputs

READING, LOADING = "reading the weights", "loading ExecuTorch"
ROUNDING = "rounding the weights"
QUANTISING, FINDING = "quantising and tracing the model", "partitioning the graph for the GPU"
PACKING, WRITTEN = "packing the weights", "program written"

# Seconds of each stage: fixed, and per million parameters. Measured with executorch 1.5.1 on two busy cores:
# 40 million parameters took 814 s. Only the ratios matter: cli/export_eta.py measures the machine.
STAGES = {
    READING: (0.2, 0.02),
    LOADING: (28.0, 0.0),
    ROUNDING: (0.0, 1.2),  # only with rounding="feedback"
    QUANTISING: (14.0, 11.0),
    FINDING: (21.0, 6.5),
    PACKING: (2.0, 0.9),
    WRITTEN: (1.0, 0.25),
}


class Stage(str):
    """A progress line that starts a stage, with the usual seconds of every stage for a model of this size."""

    __slots__ = ("usual",)
    usual: dict[str, float]

    @classmethod
    def of(cls, name: str, parameters: int, rounds: bool = True) -> Self:
        """`rounds`: the export has the stage ROUNDING."""
        stage = cls(name)
        millions = parameters / 1e6
        stage.usual = {
            name: fixed + each * millions
            for name, (fixed, each) in STAGES.items()
            if rounds or name != ROUNDING
        }
        return stage


def report_stages(
    progress: Callable[[str], None], parameters: int, rounds: bool = True
) -> Callable[[str], None]:
    """A callback that forwards lines to `progress`, and turns lines that start a stage into a Stage."""
    return lambda line: progress(Stage.of(line, parameters, rounds) if line in STAGES else line)


def check_memory(checkpoint: Checkpoint, context: int) -> str:
    """A line about the memory needed; an error if the machine has too little."""
    needed, free = estimate_memory(checkpoint, context), free_memory()
    line = f"a context of {context:,} tokens, about {_gigabytes(needed)} to export"
    if free is not None and needed > free:
        raise PteronError(f"{line}, but only {_gigabytes(free)} of memory are free")
    return line if free is None else f"{line} ({_gigabytes(free)} of memory are free)"


def estimate_memory(checkpoint: Checkpoint, context: int) -> int:
    """The peak memory of an export, in bytes, with a KV cache of `context` tokens."""
    per_token = sum(tensor.rows for name, tensor in checkpoint.tensors.items() if name.endswith(_CACHED))
    return int(LIBRARIES + COPIES * 4 * checkpoint.parameter_count) + 4 * per_token * context


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:,.1f} GB"
