"""What language models are exported from: GGUF files, Hugging Face folders, llama2.c's model files."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from fuzz.folder import joined, member_mutation, parted, written
from fuzz.mutation.flatbuffers import field_mutation
from fuzz.mutation.havoc import havoc
from fuzz.mutation.json_tree import header_mutation, tree_mutation
from fuzz.target import Target
from fuzz.targets.companions import SEEDS, _llama2c
from pteron.llm.export.checkpoint import Checkpoint
from pteron.llm.export.gguf_file import read_gguf
from pteron.llm.export.huggingface import read_huggingface
from pteron.llm.export.llama2c import read_llama2c
from pteron.llm.network.options import Options


def _use(checkpoint: Checkpoint) -> str:
    checkpoint.program(Options(quantize=None, embedding_bits=None))
    if checkpoint.has_groups:
        checkpoint.program(Options(quantize="8g", embedding_bits=8))
    for tensor in checkpoint.tensors.values():
        for _ in tensor.blocks():
            pass
        for _ in tensor.blocks_of_groups() if tensor.groups else ():
            pass
    return "read"


def _run_gguf(data: bytes) -> str:
    with written({"model.gguf": data}) as folder:
        return _use(read_gguf(folder / "model.gguf"))


def _run_safetensors(data: bytes) -> str:
    return _run_folder(joined({"config.json": _seed("config.json")}), data)


def _run_folder(data: bytes, weights: bytes | None = None) -> str:
    tokenizer = {"tokenizer.json": _seed("pieces.tokenizer.json")}
    tensors = {"model.safetensors": weights if weights is not None else _seed("model.safetensors")}
    with written({**tokenizer, **tensors, **parted(data)}) as folder:
        return _use(read_huggingface(folder))


def _run_llama2c(data: bytes) -> str:
    with written({"model.bin": data, "tokenizer.bin": _llama2c()}) as folder:
        return _use(read_llama2c(folder / "model.bin"))


def _seed(name: str) -> bytes:
    return Path(SEEDS / name).read_bytes()


def _llama2c_models() -> Iterator[bytes]:
    """One layer of width 4, once with an output matrix of its own."""
    for vocabulary in (12, -12):
        shapes = 12 * 4 + 4 + 4 * 16 + 4 + 3 * 16 + 4 + 8 * 2 + (12 * 4 if vocabulary < 0 else 0)
        yield struct.pack("<7i", 4, 4, 1, 2, 2, vocabulary, 8) + bytes(4 * shapes)


CHECKPOINT_TARGETS = [
    Target(
        name="gguf",
        run=_run_gguf,
        seeds=lambda: (file.read_bytes() for file in sorted(SEEDS.glob("*.gguf"))),
        mutate=havoc,
        suffix=".gguf",
        needs=("gguf", "tokenizers"),
        seconds=6,
    ),
    Target(
        name="safetensors",
        run=_run_safetensors,
        seeds=lambda: iter([_seed("model.safetensors")]),
        mutate=header_mutation("F32", "F16", "I64", "BF16", "F8_E4M3", [0, 64]),
        suffix=".safetensors",
        needs=("tokenizers",),
        seconds=6,
    ),
    Target(
        name="config",
        run=_run_folder,
        seeds=lambda: iter([joined({"config.json": _seed("config.json"), "README.md": b"license: mit\n"})]),
        mutate=member_mutation(
            {".json": tree_mutation("llama", "qwen2", "qwen3", "mistral", "yarn", "linear")}
        ),
        suffix=".folder",
        needs=("tokenizers",),
        seconds=6,
    ),
    Target(
        name="llama2c_model",
        run=_run_llama2c,
        seeds=_llama2c_models,
        mutate=field_mutation(len, [(4 * index, 4) for index in range(7)]),
        suffix=".bin",
        needs=(),
    ),
]
