"""The programs that benchmarks/llm.py is run on: shapes of known models with patterned weights.

    python benchmarks/llama_program.py llama1b_q4.pte
    python benchmarks/llama_program.py llama8b_q4.pte --shape 8b --context 131072
    python benchmarks/llama_program.py llama1b_8da4w.pte --quantize 8da4w
    python benchmarks/llama_program.py llama1b_f16.pte --quantize f16
    python benchmarks/llama_program.py experts1b_q4.pte --experts 64 --chosen 8

With --experts, the MLPs of a dense shape are mixtures of experts. The chosen experts of a token are together
as large as the dense MLP, so a token reads as many weights. 64 with 8 chosen, as in OLMoE, take 4.0 GB.

Speed does not depend on what the weights are. Each is 64 random rows over and over, and large ones are the
same in all layers, so that a program of 900 MB is made in seconds and packs to a few MB (`xz -3`).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from pteron.format.program_writer import StreamedData
from pteron.format.stored_tensor import Array, StoredTensor
from pteron.llm.architectures import FAMILIES
from pteron.llm.export.checkpoint import EMBEDDING_WEIGHT, OUTPUT_WEIGHT, Checkpoint, Vocabulary, assemble
from pteron.llm.network.options import QUANTIZATIONS, Options


@dataclass(frozen=True)
class Shape:
    """The sizes of a model."""

    width: int
    layers: int
    heads: int
    key_heads: int
    head: int  # elements
    hidden: int  # of an MLP, or of an expert
    experts: int = 0  # in each layer; 0: a dense MLP
    chosen: int = 1
    vocabulary: int = 128256


SHAPES = {  # width, layers, heads, key heads, head, hidden
    "1b": Shape(2048, 16, 32, 8, 64, 8192),  # Llama 3.2 1B
    "8b": Shape(4096, 32, 32, 8, 128, 14336),  # Llama 3.1 8B
    "32b": Shape(5120, 64, 64, 8, 128, 25600, vocabulary=151936),  # Qwen3 32B
    "70b": Shape(8192, 80, 64, 8, 128, 28672),  # Llama 3.1 70B
    "qwen3-30b-a3b": Shape(2048, 48, 32, 4, 128, 768, 128, 8, vocabulary=151936),
    "gpt-oss-20b": Shape(2880, 24, 64, 8, 64, 2880, 32, 4, vocabulary=201088),
}
ROWS = 64  # that differ
LARGE = 1 << 20  # bytes of a weight that layers have in common


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program", type=Path)
    parser.add_argument("--quantize", choices=[*QUANTIZATIONS, "f16"], default="4w")
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    parser.add_argument("--layers", type=int, help="other than the shape's")
    parser.add_argument("--vocabulary", type=int, help="other than the shape's")
    parser.add_argument("--experts", type=int, help="in each layer, in place of a dense shape's MLP")
    parser.add_argument("--chosen", type=int, default=8, help="of --experts, for a token")
    parser.add_argument("--group", type=int, default=64, help="weights that share a scale")
    parser.add_argument("--context", type=int, default=2048, help="positions of the caches")
    parser.add_argument("--prompt", type=int, default=1024, help="tokens of a call, at most")
    arguments = parser.parse_args()
    shape = SHAPES[arguments.shape]
    if arguments.experts:
        chosen, hidden = arguments.chosen, shape.hidden // arguments.chosen
        shape = replace(shape, experts=arguments.experts, chosen=chosen, hidden=hidden)
    own = {"layers": arguments.layers, "vocabulary": arguments.vocabulary}
    shape = replace(shape, **{name: given for name, given in own.items() if given})
    checkpoint = patterned(shape)
    rounding = "nearest" if arguments.quantize == "8w" else "extremes"
    options = Options(
        arguments.quantize,
        arguments.group,
        max_seq_len=arguments.prompt,
        max_context_len=arguments.context,
        rounding=rounding,
    )
    if arguments.quantize == "f16":
        options = replace(options, quantize=None, embedding_bits=None, rounding="nearest", force_fp16=True)
    program = checkpoint.program(options)
    replace(program, named_data=read_once(program.named_data)).write(arguments.program)
    print(f"{arguments.program}: {arguments.program.stat().st_size / 1e6:.1f} MB")


def patterned(shape: Shape) -> Checkpoint:
    """A checkpoint of Llama's architecture with these sizes."""
    width, queries, keys = shape.width, shape.heads * shape.head, shape.key_heads * shape.head
    attention = {"wq": (queries, width), "wk": (keys, width), "wv": (keys, width), "wo": (width, queries)}
    hidden = max(1, shape.experts) * shape.hidden
    if shape.experts:
        feed_forward = {
            "router": (shape.experts, width),
            "experts.w1": (hidden, width),
            "experts.w2": (shape.experts * width, shape.hidden),
            "experts.w3": (hidden, width),
        }
    else:
        feed_forward = {"w1": (hidden, width), "w2": (width, hidden), "w3": (hidden, width)}
    vocabulary = (shape.vocabulary, width)
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING_WEIGHT: vocabulary, OUTPUT_WEIGHT: vocabulary}
    for layer in (f"layers.{i}" for i in range(shape.layers)):
        shapes |= {f"{layer}.{norm}.weight": (width,) for norm in ("attention_norm", "ffn_norm")}
        shapes |= {f"{layer}.attention.{name}.weight": each for name, each in attention.items()}
        shapes |= {f"{layer}.feed_forward.{name}.weight": each for name, each in feed_forward.items()}
    shapes["norm.weight"] = (width,)
    config = {
        "hidden_size": width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.key_heads,
        "head_dim": shape.head,
        "num_experts": shape.experts,
        "num_experts_per_tok": shape.chosen,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "rope_interleaved": True,
    }
    random = np.random.default_rng(0)
    tensors = {name: _tensor(each, random) for name, each in shapes.items()}
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
