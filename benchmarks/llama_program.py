"""The programs that benchmarks/llm.py is run on: Llama-3.2-1B's shape with patterned weights.

    python benchmarks/llama_program.py llama1b_q4.pte
    python benchmarks/llama_program.py llama1b_8da4w.pte --quantize 8da4w
    python benchmarks/llama_program.py llama1b_f16.pte --quantize f16
    python benchmarks/llama_program.py experts1b_q4.pte --experts 64 --chosen 8

With --experts, MLPs are mixtures of experts. The chosen experts of a token are together as large as the dense
MLP, so a token reads as many weights. 64 experts with 8 chosen, as in OLMoE, take 4.0 GB.

Speed does not depend on what the weights are. Each is 64 random rows over and over, and large ones are the
same in all layers, so that a program of 900 MB is made in seconds and packs to a few MB (`xz -3`).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from pteron.format.program_writer import StreamedData
from pteron.llm.architectures import FAMILIES
from pteron.llm.build.options import QUANTIZATIONS, Options
from pteron.llm.build.stored_tensor import Array, StoredTensor
from pteron.llm.export.checkpoint import EMBEDDING, OUTPUT, Checkpoint, Vocabulary, assemble

ROWS = 64  # that differ
LARGE = 1 << 20  # bytes of a weight that layers have in common


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program", type=Path)
    parser.add_argument("--quantize", choices=[*QUANTIZATIONS, "f16"], default="4w")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--vocabulary", type=int, default=128256)
    parser.add_argument("--experts", type=int, default=0, help="in each layer; 0: a dense MLP")
    parser.add_argument("--chosen", type=int, default=8, help="experts for a token")
    arguments = parser.parse_args()
    checkpoint = patterned(arguments.layers, arguments.vocabulary, arguments.experts, arguments.chosen)
    rounding = "nearest" if arguments.quantize == "8w" else "extremes"
    options = Options(arguments.quantize, 64, max_seq_len=1024, max_context_len=2048, rounding=rounding)
    if arguments.quantize == "f16":
        options = replace(options, quantize=None, embedding_bits=None, rounding="nearest", force_fp16=True)
    program = checkpoint.program(options)
    replace(program, named_data=read_once(program.named_data)).write(arguments.program)
    print(f"{arguments.program}: {arguments.program.stat().st_size / 1e6:.1f} MB")


def patterned(
    layers: int, vocabulary: int, experts: int = 0, chosen: int = 1, width: int = 2048, hidden: int = 8192
) -> Checkpoint:
    """A checkpoint of Llama-3.2-1B's shape, or with experts in place of its MLPs."""
    keys = width // 4  # eight of 32 heads
    attention = {"wq": (width, width), "wk": (keys, width), "wv": (keys, width), "wo": (width, width)}
    feed_forward = {"w1": (hidden, width), "w2": (width, hidden), "w3": (hidden, width)}
    if experts:
        hidden //= chosen
        inner, outer = (experts * hidden, width), (experts * width, hidden)
        feed_forward = {
            "router": (experts, width),
            "experts.w1": inner,
            "experts.w2": outer,
            "experts.w3": inner,
        }
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
        "num_experts": experts,
        "num_experts_per_tok": chosen,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "rope_interleaved": True,
    }
    random = np.random.default_rng(0)
    tensors = {name: _tensor(shape, random) for name, shape in shapes.items()}
    vocabulary_files = Vocabulary("", {}, bos_id=1, eos_ids=(2,))
    return assemble("llama1b", config, FAMILIES["llama"], tensors, None, vocabulary_files)


def read_once(named_data: Mapping[str, StreamedData]) -> dict[str, StreamedData]:
    """The data with large weights of the first layer in all layers: only those are quantised."""

    @cache
    def of_first(key: str) -> memoryview:
        return named_data[key].read()

    def repeated(key: str, data: StreamedData) -> StreamedData:
        if not key.startswith("layers.") or data.size < LARGE:
            return data
        first = re.sub(r"^layers\.\d+", "layers.0", key)
        return StreamedData(data.size, lambda: [of_first(first)])

    return {key: repeated(key, data) for key, data in named_data.items()}


def _tensor(shape: tuple[int, ...], random: np.random.Generator) -> StoredTensor:
    if len(shape) == 1:
        return StoredTensor.of(1 + 0.1 * random.standard_normal(shape))
    pattern = (random.standard_normal((ROWS, shape[1])) * shape[1] ** -0.5).astype(np.float32)

    def read_rows(start: int, stop: int) -> Array:
        return pattern[np.arange(start, stop) % ROWS]

    return StoredTensor(shape, read_rows)


if __name__ == "__main__":
    main()
