"""A Hugging Face folder (config.json, *.safetensors, tokenizer) -> a checkpoint.

The Llama, SmolLM2, Mistral, Qwen2 and Qwen3 families have one decoder with different parameters. RoPE pairs
the two halves of a head; ExecuTorch has that mode too (`use_hf_rope`), so weights keep their order.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pteron.errors import FormatError, UnsupportedError
from pteron.extras import need
from pteron.format.source import open_file, read_file
from pteron.llm.export.checkpoint import (
    EMBEDDING,
    OUTPUT,
    Checkpoint,
    Vocabulary,
    Weights,
    as_config_error,
    rope_parameters,
)
from pteron.llm.model_files import COMPANION_BYTES_MAX, read_json, read_utf8
from pteron.llm.tokenizers.load import FILE_NAMES, load_tokenizer

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
TOP_NAMES = {
    "model.embed_tokens.weight": EMBEDDING,
    "model.norm.weight": "norm.weight",
    "lm_head.weight": OUTPUT,
}
LAYER_NAMES = {
    "self_attn.q_proj": "attention.wq",
    "self_attn.k_proj": "attention.wk",
    "self_attn.v_proj": "attention.wv",
    "self_attn.o_proj": "attention.wo",
    "self_attn.q_norm": "attention.q_norm_fn",
    "self_attn.k_norm": "attention.k_norm_fn",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3",
}
# Derived from the configuration; some checkpoints store it anyway.
IGNORED = re.compile(r".*rotary_emb\.inv_freq")
COMPANIONS = ("tokenizer_config.json", "special_tokens_map.json", "generation_config.json")
NOTICES = re.compile(r"(LICEN[CS]E|NOTICE)[^/]*", re.IGNORECASE)


def read_huggingface(folder: Path) -> Checkpoint:
    config = read_json(folder / "config.json")
    if not config:
        raise FormatError(f"{folder} has no config.json: not a Hugging Face checkpoint")
    with as_config_error(folder.name):
        parameters = read_parameters(config, folder.name)
        context_length = int(config.get("max_position_embeddings", 2048))
    tied = bool(config.get("tie_word_embeddings", False))
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise FormatError(f"{folder} has no .safetensors files")
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in _stored_shapes(files).items():
        renamed = rename(name)
        if renamed is not None and not (tied and renamed == OUTPUT):
            shapes[renamed] = shape
    if "layers.0.attention.wo.bias" in shapes or "layers.0.feed_forward.w1.bias" in shapes:
        raise UnsupportedError(f"{folder.name}: biases outside of queries, keys and values")
    parameters["attention_qkv_bias"] = "layers.0.attention.wq.bias" in shapes
    return Checkpoint(
        folder.name,
        parameters,
        shapes,
        lambda: _read_weights(files, shapes),
        context_length,
        read_vocabulary(folder),
        read_licence(folder),
        {
            file.name: read_file(file, COMPANION_BYTES_MAX)
            for file in folder.iterdir()
            if NOTICES.fullmatch(file.name)
        },
    )


def read_parameters(config: dict[str, Any], name: str) -> dict[str, Any]:
    family = config.get("model_type")
    if family not in FAMILIES:
        raise UnsupportedError(f"{name}: model type {family!r}; known are {', '.join(FAMILIES)}")
    if config.get("hidden_act", "silu") != "silu":
        raise UnsupportedError(f"{name}: activation {config['hidden_act']!r}; only silu is known")
    windowed = config.get("use_sliding_window", family == "mistral") and config.get("sliding_window")
    if windowed:
        raise UnsupportedError(f"{name}: attention with a sliding window of {windowed} tokens")
    heads = int(config["num_attention_heads"])
    head_dim = int(config.get("head_dim") or config["hidden_size"] // heads)
    parameters: dict[str, Any] = {
        "dim": int(config["hidden_size"]),
        "n_layers": int(config["num_hidden_layers"]),
        "n_heads": heads,
        "n_kv_heads": int(config.get("num_key_value_heads") or heads),
        "head_dim": head_dim,
        "vocab_size": int(config["vocab_size"]),
        "hidden_dim": int(config["intermediate_size"]),
        "norm_eps": float(config["rms_norm_eps"]),
    }
    if family == "qwen3":
        parameters |= {"use_qk_norm": True, "qk_norm_before_rope": True}
    return parameters | rope_parameters(config, head_dim, name)


def rename(name: str) -> str | None:
    """ExecuTorch's name of a weight; None for a weight that it does not need."""
    if IGNORED.fullmatch(name):
        return None
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    matched = re.fullmatch(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)", name)
    if matched is None or matched[2] not in LAYER_NAMES:
        raise UnsupportedError(f"unknown weight {name}")
    return f"layers.{matched[1]}.{LAYER_NAMES[matched[2]]}.{matched[3]}"


def _stored_shapes(files: list[Path]) -> dict[str, tuple[int, ...]]:
    library = need("safetensors", "reading .safetensors", "export")
    shapes = {}
    for file in files:
        open_file(file).close()  # a clear message for a missing file
        try:
            with library.safe_open(str(file), framework="pt") as opened:
                for name in opened.keys():  # noqa: SIM118 (not a mapping)
                    shapes[name] = tuple(opened.get_slice(name).get_shape())
        except library.SafetensorError as error:
            raise FormatError(f"{file.name} is damaged: {error}") from error
    return shapes


def _read_weights(files: list[Path], wanted: dict[str, tuple[int, ...]]) -> Weights:
    load_file = need("safetensors.torch", "reading .safetensors", "export").load_file
    weights: Weights = {}
    for file in files:
        for name, weight in load_file(str(file)).items():
            renamed = rename(name)
            if renamed in wanted:
                weights[renamed] = weight
    return weights


def read_licence(folder: Path) -> str | None:
    """The licence in the header of the model card."""
    card = folder / "README.md"
    found = card.exists() and re.search(r"^license: *(\S+)", read_utf8(card), re.MULTILINE)
    return found[1] if found else None


def read_vocabulary(folder: Path) -> Vocabulary:
    tokenizer = load_tokenizer(folder)
    found = [file for pattern in FILE_NAMES for file in sorted(folder.glob(pattern))]
    kept = found[:1] + [folder / name for name in COMPANIONS if (folder / name).exists()]
    return Vocabulary(
        found[0].name,
        {file.name: read_file(file, COMPANION_BYTES_MAX) for file in kept},
        tokenizer.bos_id,
        tokenizer.eos_ids,
        tokenizer.adds_bos,
        tokenizer.chat_template,
    )
