"""Falcon: 7B with one head of keys, 40B and 11B with groups, all in parallel; RW with ALiBi, in sequence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pteron.format.stored_tensor import StoredTensor
from pteron.llm.architectures.bloom import alibi_slopes
from pteron.llm.architectures.config import Config
from pteron.llm.architectures.family import Family, require_settings, stack
from pteron.llm.architectures.names import (
    GGUF_PLAIN_MLP,
    Names,
    split_grouped_qkv,
    split_qkv,
    with_optional_prefix,
)
from pteron.llm.architectures.parts import Attention, Decoder, Mlp


def decoder(config: Config) -> Decoder:
    require_settings(config, apply_residual_connection_post_layernorm=False)
    config = _with_heads(config)
    attention = config.attention()
    if config.get("alibi"):
        attention = replace(attention, rotary=None, slopes=_slopes(attention))
    is_parallel = bool(config.get("new_decoder_architecture") or config.get("parallel_attn", True))
    mlp = Mlp(config.activation("gelu"))
    return stack(config, attention, mlp, config.layer_norm, parallel=is_parallel)


def _with_heads(config: Config) -> Config:
    """With the number of heads of keys, which older and newer files state in other ways."""
    if "multi_query" not in config:  # a GGUF file
        return config
    heads = config["num_attention_heads"]
    if config.get("new_decoder_architecture"):
        kv_heads = config.get("num_kv_heads") or heads
    else:
        kv_heads = 1 if config["multi_query"] else heads
    return config.changed(num_key_value_heads=kv_heads)


def _slopes(attention: Attention) -> tuple[float, ...]:
    """Falcon adds ALiBi before it scales scores, and stores slopes as bfloat16."""
    bits = np.array(alibi_slopes(attention.heads), np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    return tuple(float(slope) * attention.head_dim**-0.5 for slope in rounded)


def _split(config: Config, tensor: StoredTensor) -> dict[str, StoredTensor]:
    config = _with_heads(config)
    is_plain = config["multi_query"] and not config.get("new_decoder_architecture")
    return dict((split_qkv if is_plain else split_grouped_qkv)(config, tensor))


def _both_norms(_: Config, tensor: StoredTensor) -> dict[str, StoredTensor]:
    """GGUF's `attn_norm` is that of the MLP, and that of attention if there is no `attn_norm_2`."""
    return {"layers.{}.attention_norm": tensor, "layers.{}.ffn_norm": tensor}


NAMES: Names = {
    **with_optional_prefix(
        "transformer.",
        {
            "word_embeddings": "tok_embeddings",
            "ln_f": "norm",
            "h.{}.self_attention.query_key_value": _split,
            "h.{}.self_attention.dense": "layers.{}.attention.wo",
            "h.{}.self_attention.rotary_emb.inv_freq": None,
            "h.{}.mlp.dense_h_to_4h": "layers.{}.feed_forward.w1",
            "h.{}.mlp.dense_4h_to_h": "layers.{}.feed_forward.w2",
            "h.{}.input_layernorm": "layers.{}.attention_norm",
            "h.{}.ln_attn": "layers.{}.attention_norm",
            "h.{}.post_attention_layernorm": "layers.{}.ffn_norm",
            "h.{}.ln_mlp": "layers.{}.ffn_norm",
        },
    ),
    "lm_head": "output",
}
GGUF_NAMES: Names = {
    **GGUF_PLAIN_MLP,
    "blk.{}.attn_qkv": split_qkv,
    "blk.{}.attn_norm": _both_norms,
    "blk.{}.attn_norm_2": "layers.{}.attention_norm",
}
_KEYS = {"hidden_act": "activation", "layer_norm_eps": "layer_norm_epsilon"}
FAMILIES = {"falcon": Family(decoder, NAMES, GGUF_NAMES, _KEYS)}
