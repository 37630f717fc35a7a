"""llama2.c's model file (its first version: seven integers, then float32 weights) -> a checkpoint.

Weights are stored kind by kind, each for all layers. RoPE is interleaved.
"""

from __future__ import annotations

import os
import struct
from math import prod
from pathlib import Path

from pteron.errors import FormatError
from pteron.format.safetensors import stored_tensor
from pteron.format.source import open_bytes, open_file, read_file
from pteron.format.stored_tensor import StoredTensor
from pteron.llm.architectures import FAMILIES
from pteron.llm.export.checkpoint import EMBEDDING_WEIGHT, OUTPUT_WEIGHT, Checkpoint, Vocabulary, assemble
from pteron.names.model_files import COMPANION_BYTES_MAX

HEADER = struct.Struct("<7i")


def read_llama2c(path: Path) -> Checkpoint:
    """The model at `path`, with the tokenizer.bin in the same folder."""
    with open_file(path) as file:
        header, size = file.read(HEADER.size), os.fstat(file.fileno()).st_size
    if len(header) < HEADER.size:
        raise FormatError(f"{path.name}: too short for a llama2.c model")
    dim, hidden, layers, heads, kv_heads, vocab_size, context = HEADER.unpack(header)
    # A negative vocabulary size: the output matrix is stored, at the end.
    own_output, vocab_size = vocab_size < 0, abs(vocab_size)
    if min(dim, hidden, layers, heads, kv_heads, vocab_size, context) <= 0 or dim % heads or heads % kv_heads:
        raise FormatError(f"{path.name}: not a llama2.c model (invalid header)")
    kv_dim = dim // heads * kv_heads
    kinds: dict[str, tuple[int, ...]] = {
        "attention_norm": (dim,),
        "attention.wq": (dim, dim),
        "attention.wk": (kv_dim, dim),
        "attention.wv": (kv_dim, dim),
        "attention.wo": (dim, dim),
        "ffn_norm": (dim,),
        "feed_forward.w1": (hidden, dim),
        "feed_forward.w2": (dim, hidden),
        "feed_forward.w3": (hidden, dim),
    }
    rotary_tables = context * (dim // heads)
    tables = (2 if own_output else 1) * vocab_size * dim
    expected = HEADER.size + 4 * (layers * sum(map(prod, kinds.values())) + dim + tables + rotary_tables)
    if size != expected:  # before `shapes` is filled: a damaged header may have 2^31 layers
        raise FormatError(f"{path.name}: {size} bytes, but its header requires {expected}")
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING_WEIGHT: (vocab_size, dim)}
    for kind, shape in kinds.items():
        shapes |= {f"layers.{layer}.{kind}.weight": shape for layer in range(layers)}
    shapes["norm.weight"] = (dim,)
    if own_output:
        shapes[OUTPUT_WEIGHT] = (vocab_size, dim)

    config = {
        "hidden_size": dim,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_interleaved": True,
        "max_position_embeddings": context,
    }
    tensors = _tensors(path, shapes, rotary_tables)
    vocabulary = read_vocabulary(path.parent / "tokenizer.bin")
    return assemble(path.stem, config, FAMILIES["llama"], tensors, None, vocabulary)


def _tensors(path: Path, shapes: dict[str, tuple[int, ...]], rotary_tables: int) -> dict[str, StoredTensor]:
    file = open_bytes(path)
    tensors: dict[str, StoredTensor] = {}
    position = HEADER.size
    for name, shape in shapes.items():
        if name == OUTPUT_WEIGHT:
            position += 4 * rotary_tables  # the builder computes its own
        size = 4 * prod(shape)
        tensors[name] = stored_tensor(file.view[position : position + size], shape, "F32")
        position += size
    return tensors


def read_vocabulary(tokenizer: Path) -> Vocabulary:
    if not tokenizer.exists():
        raise FormatError(f"a llama2.c model needs a tokenizer.bin in its folder: {tokenizer} does not exist")
    # In training, token 1 separates stories: it ends a text too.
    files = {tokenizer.name: read_file(tokenizer, COMPANION_BYTES_MAX)}
    return Vocabulary(tokenizer.name, files, bos_id=1, eos_ids=(1, 2), adds_bos=True)
