"""Tiny random checkpoints of each family, as a Hugging Face folder holds them.

Their tensors come from a seeded NumPy generator, so that goldens computed from them once stay true.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

VOCABULARY, DIM, HIDDEN, LAYERS, HEADS, KV_HEADS = 96, 64, 96, 2, 4, 2
PROMPT = [5, 17, 3, 80, 41, 2, 2, 63, 9, 30, 71, 8, 55, 90, 12, 44, 1, 77, 26, 60]
SHARED: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": DIM,
    "intermediate_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "tie_word_embeddings": True},
    "llama3": {"model_type": "llama", "rope_theta": 500.0, "rope_scaling": LLAMA3_ROPE},
    "llama_linear": {"model_type": "llama", "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "mistral": {"model_type": "mistral", "sliding_window": None, "head_dim": 32},
    "qwen2": {"model_type": "qwen2", "rms_norm_eps": 1e-6, "use_sliding_window": False},
    "qwen3": {"model_type": "qwen3", "head_dim": 32, "tie_word_embeddings": True, "rope_theta": 1e6},
}


def config(family: str) -> dict[str, Any]:
    return SHARED | FAMILIES[family]


def tensors(family: str) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    settings = config(family)
    random = np.random.default_rng(7)
    head_dim = settings.get("head_dim", DIM // HEADS)
    q, kv = HEADS * head_dim, KV_HEADS * head_dim
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCABULARY, DIM)}
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        shapes |= {
            f"{name}.input_layernorm.weight": (DIM,),
            f"{name}.self_attn.q_proj.weight": (q, DIM),
            f"{name}.self_attn.k_proj.weight": (kv, DIM),
            f"{name}.self_attn.v_proj.weight": (kv, DIM),
            f"{name}.self_attn.o_proj.weight": (DIM, q),
            f"{name}.post_attention_layernorm.weight": (DIM,),
            f"{name}.mlp.gate_proj.weight": (HIDDEN, DIM),
            f"{name}.mlp.up_proj.weight": (HIDDEN, DIM),
            f"{name}.mlp.down_proj.weight": (DIM, HIDDEN),
        }
        if family == "qwen2":
            for kind, size in (("q", q), ("k", kv), ("v", kv)):
                shapes[f"{name}.self_attn.{kind}_proj.bias"] = (size,)
        if family == "qwen3":
            for kind in ("q", "k"):
                shapes[f"{name}.self_attn.{kind}_norm.weight"] = (head_dim,)
    shapes["model.norm.weight"] = (DIM,)
    if not settings["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (VOCABULARY, DIM)
    # Norms around 1; matrices large enough for positions and heads to matter.
    return {
        name: (
            1 + 0.3 * random.standard_normal(shape)
            if "norm" in name
            else 0.15 * random.standard_normal(shape)
        ).astype(np.float32)
        for name, shape in shapes.items()
    }


def write_folder(family: str, folder: Path) -> Path:
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(family)))
    stored = tensors(family)
    # In two files, as large checkpoints come.
    names = sorted(stored)
    places: dict[str, str] = {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        file = f"model-{number:05}-of-00002.safetensors"
        save_file({name: stored[name] for name in part}, folder / file, {"format": "pt"})
        places |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    write_tokenizer(folder)
    return folder


def write_tokenizer(folder: Path) -> None:
    """One token for each printable ASCII character, and one that ends a text."""
    import tokenizers

    alphabet = ["<|end|>", *(chr(code) for code in range(0x21, 0x7F)), "Ġ"]
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE({token: id for id, token in enumerate(alphabet)}, [])
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for m in messages %}{{ m.content }}<|end|>{% endfor %}"
    settings = {"eos_token": "<|end|>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
