"""The programs that benchmarks/llm.py is run on: Llama-3.2-1B's shape with patterned weights.

    python benchmarks/llama_program.py llama1b_q4.pte
    python benchmarks/llama_program.py llama1b_8da4w.pte --quantize 8da4w

Speed does not depend on what the weights are. Each is 64 random rows over and over, so that a program of
900 MB packs to 12 (`xz -3`). Needs the [export] extra, 12 GB of memory, and some ten minutes.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch

from pteron.llm.export.checkpoint import EMBEDDING, OUTPUT, Checkpoint, Vocabulary
from pteron.llm.export.lowering import QUANTIZATIONS, Options, check, lower_in_subprocess, stage

ROWS = 64  # that differ


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program", type=Path)
    parser.add_argument("--quantize", choices=QUANTIZATIONS, default="4w")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--vocabulary", type=int, default=128256)
    arguments = parser.parse_args()
    checkpoint = patterned(arguments.layers, arguments.vocabulary)
    options = Options(arguments.quantize, 64, max_seq_len=1024, max_context_len=2048, rounding="extremes")
    check(checkpoint, options)
    with tempfile.TemporaryDirectory(dir=arguments.program.absolute().parent, prefix=".export-") as folder:
        stage(checkpoint, Path(folder), options)
        made = lower_in_subprocess(Path(folder), options, {"get_bos_id": 1, "get_eos_ids": [2]}, print)
        shutil.move(made, arguments.program)
    print(f"{arguments.program}: {arguments.program.stat().st_size / 1e6:.1f} MB")


def patterned(layers: int, vocabulary: int, width: int = 2048, hidden: int = 8192) -> Checkpoint:
    """A checkpoint of Llama-3.2-1B's shape."""
    keys = width // 4  # eight of 32 heads
    attention = {"wq": (width, width), "wk": (keys, width), "wv": (keys, width), "wo": (width, width)}
    feed_forward = {"w1": (hidden, width), "w2": (width, hidden), "w3": (hidden, width)}
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (vocabulary, width), OUTPUT: (vocabulary, width)}
    for layer in (f"layers.{i}" for i in range(layers)):
        shapes |= {f"{layer}.{norm}.weight": (width,) for norm in ("attention_norm", "ffn_norm")}
        shapes |= {f"{layer}.attention.{name}.weight": shape for name, shape in attention.items()}
        shapes |= {f"{layer}.feed_forward.{name}.weight": shape for name, shape in feed_forward.items()}
    shapes["norm.weight"] = (width,)
    parameters = {
        "dim": width,
        "n_layers": layers,
        "n_heads": 32,
        "n_kv_heads": 8,
        "vocab_size": vocabulary,
        "hidden_dim": hidden,
        "norm_eps": 1e-5,
        "rope_theta": 500000.0,
    }

    def weights() -> dict[str, Any]:
        torch.manual_seed(0)
        return {name: _weight(shape) for name, shape in shapes.items()}

    return Checkpoint("llama1b", parameters, shapes, weights, 2048, Vocabulary("", {}))


def _weight(shape: tuple[int, ...]) -> torch.Tensor:
    if len(shape) == 1:
        return 1 + 0.1 * torch.randn(shape)
    rows, columns = shape
    return (torch.randn(ROWS, columns) * columns**-0.5).repeat(-(-rows // ROWS), 1)[:rows].contiguous()


if __name__ == "__main__":
    main()
