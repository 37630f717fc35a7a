"""The programs that benchmarks/llm.py is run on: Llama-3.2-1B's shape with patterned weights.

    python benchmarks/llama_program.py llama1b_q4.pte
    python benchmarks/llama_program.py llama1b_8da4w.pte --quantize 8da4w

Speed does not depend on what the weights are. Each is 64 random rows over and over, so that a program of
900 MB packs to 12 (`xz -3`).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from pteron.llm.architectures import FAMILIES
from pteron.llm.build.options import QUANTIZATIONS, Options
from pteron.llm.build.stored_tensor import Array, StoredTensor
from pteron.llm.export.checkpoint import EMBEDDING, OUTPUT, Checkpoint, Vocabulary, assemble

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
    rounding = "nearest" if arguments.quantize == "8w" else "extremes"
    options = Options(arguments.quantize, 64, max_seq_len=1024, max_context_len=2048, rounding=rounding)
    checkpoint.program(options).write(arguments.program)
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
    config = {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "rope_interleaved": True,
    }
    random = np.random.default_rng(0)
    tensors = {name: _tensor(shape, random) for name, shape in shapes.items()}
    vocabulary_files = Vocabulary("", {}, bos_id=1, eos_ids=(2,))
    return assemble("llama1b", config, FAMILIES["llama"], tensors, None, vocabulary_files)


def _tensor(shape: tuple[int, ...], random: np.random.Generator) -> StoredTensor:
    if len(shape) == 1:
        return StoredTensor.of(1 + 0.1 * random.standard_normal(shape))
    pattern = (random.standard_normal((ROWS, shape[1])) * shape[1] ** -0.5).astype(np.float32)

    def read_rows(start: int, stop: int) -> Array:
        return pattern[np.arange(start, stop) % ROWS]

    return StoredTensor(shape, read_rows)


if __name__ == "__main__":
    main()
