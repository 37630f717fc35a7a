"""A GGUF file -> a checkpoint, for the architectures llama, qwen2 and qwen3.

Quantised tensors are dequantised to float32. Files of the architecture `llama` store each head's rows of
queries and keys interleaved; they are reordered into halves, as the other architectures store them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pteron.errors import FormatError, UnsupportedError
from pteron.extras import need
from pteron.llm.export.checkpoint import (
    EMBEDDING,
    OUTPUT,
    Checkpoint,
    Weights,
    as_config_error,
    rope_parameters,
)
from pteron.llm.export.gguf_vocabulary import read_vocabulary

ARCHITECTURES = ("llama", "qwen2", "qwen3")
TOP_NAMES = {"token_embd.weight": EMBEDDING, "output_norm.weight": "norm.weight", "output.weight": OUTPUT}
LAYER_NAMES = {
    "attn_q": "attention.wq",
    "attn_k": "attention.wk",
    "attn_v": "attention.wv",
    "attn_output": "attention.wo",
    "attn_q_norm": "attention.q_norm_fn",
    "attn_k_norm": "attention.k_norm_fn",
    "attn_norm": "attention_norm",
    "ffn_norm": "ffn_norm",
    "ffn_gate": "feed_forward.w1",
    "ffn_down": "feed_forward.w2",
    "ffn_up": "feed_forward.w3",
}
ROPE_FACTORS = "rope_freqs.weight"  # divisors of the rotary frequencies


def read_gguf(path: Path) -> Checkpoint:
    library = need("gguf", f"reading {path.name}", "export")
    try:
        reader = library.GGUFReader(str(path))
        fields: dict[str, Any] = {name: field.contents() for name, field in reader.fields.items()}
    except Exception as error:  # the library raises anything
        raise FormatError(f"{path.name} is damaged: {error}") from error
    architecture = fields.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise UnsupportedError(
            f"{path.name}: architecture {architecture!r}; known are {', '.join(ARCHITECTURES)}"
        )
    # GGUF lists the innermost dimension first.
    stored = {tensor.name: tuple(int(size) for size in reversed(tensor.shape)) for tensor in reader.tensors}
    shapes = {rename(name): shape for name, shape in stored.items() if name != ROPE_FACTORS}
    with as_config_error(path.name):
        parameters = read_parameters(fields, architecture, path.name)
        vocabulary = read_vocabulary(fields, path.name)
    parameters["vocab_size"] = shapes[EMBEDDING][0]
    parameters["attention_qkv_bias"] = "layers.0.attention.wq.bias" in shapes
    if ROPE_FACTORS in stored:
        parameters["rope_scaling_short_factor"] = _dequantize(reader, ROPE_FACTORS).tolist()
    heads = (parameters["n_heads"], parameters["n_kv_heads"]) if architecture == "llama" else None
    return Checkpoint(
        path.stem,
        parameters,
        shapes,
        lambda: _read_weights(path, heads),
        int(fields.get(f"{architecture}.context_length", 2048)),
        vocabulary,
        fields.get("general.license"),
    )


def read_parameters(fields: dict[str, Any], architecture: str, name: str) -> dict[str, Any]:
    values = {
        key.removeprefix(f"{architecture}."): value
        for key, value in fields.items()
        if key.startswith(f"{architecture}.")
    }
    heads = int(values["attention.head_count"])
    dim = int(values["embedding_length"])
    head_dim = int(values.get("attention.key_length") or dim // heads)
    rope = {
        "rope_theta": values.get("rope.freq_base", 10000.0),
        "partial_rotary_factor": values.get("rope.dimension_count", head_dim) / head_dim,
        "rope_type": values.get("rope.scaling.type", "default").replace("none", "default"),
        "factor": values.get("rope.scaling.factor"),
    }
    parameters: dict[str, Any] = {
        "dim": dim,
        "n_layers": int(values["block_count"]),
        "n_heads": heads,
        "n_kv_heads": int(values.get("attention.head_count_kv", heads)),
        "head_dim": head_dim,
        "hidden_dim": int(values["feed_forward_length"]),
        "norm_eps": float(values["attention.layer_norm_rms_epsilon"]),
    }
    if architecture == "qwen3":
        parameters |= {"use_qk_norm": True, "qk_norm_before_rope": True}
    return parameters | rope_parameters({"rope_parameters": rope}, head_dim, name)


def rename(name: str) -> str:
    """ExecuTorch's name of a tensor."""
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    matched = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    if matched is None or matched[2] not in LAYER_NAMES:
        raise UnsupportedError(f"unknown tensor {name}")
    return f"layers.{matched[1]}.{LAYER_NAMES[matched[2]]}.{matched[3]}"


def _dequantize(reader: Any, name: str) -> Any:
    gguf = need("gguf", "reading a GGUF file", "export")
    tensor = next(tensor for tensor in reader.tensors if tensor.name == name)
    return gguf.dequantize(tensor.data, tensor.tensor_type)


def _read_weights(path: Path, interleaved: tuple[int, int] | None) -> Weights:
    """`interleaved`: the numbers of query and key heads, if their rows are interleaved."""
    import torch

    gguf = need("gguf", f"reading {path.name}", "export")
    weights: Weights = {}
    for tensor in gguf.GGUFReader(str(path)).tensors:
        if tensor.name == ROPE_FACTORS:
            continue
        name = rename(tensor.name)
        weight = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())
        if interleaved and ".attention.wq." in name:
            weight = halve(weight, interleaved[0])
        if interleaved and ".attention.wk." in name:
            weight = halve(weight, interleaved[1])
        weights[name] = weight
    return weights


def halve(weight: Any, heads: int) -> Any:
    """Each head's rows from pairs (0, h/2, 1, h/2 + 1, ...) back to halves (0, 1, ..., h/2, ...)."""
    pairs = weight.view(heads, -1, 2, *weight.shape[1:])
    return pairs.transpose(1, 2).reshape(weight.shape)
