"""BLOOM and MPT: ALiBi instead of rotary embeddings. BLOOM has a norm of embeddings and biases."""

from __future__ import annotations

from dataclasses import replace
from math import log2

from pteron.llm.architectures.config import Config
from pteron.llm.architectures.family import Family, require_settings, stack
from pteron.llm.architectures.names import (
    GGUF_PLAIN_MLP,
    Names,
    split_grouped_qkv,
    split_qkv,
    with_optional_prefix,
)
from pteron.llm.architectures.parts import Decoder, LayerNorm, Mlp


def alibi_slopes(heads: int, most: float = 8.0) -> tuple[float, ...]:
    """2^(-most · 1/n), 2^(-most · 2/n) ... for n heads; those beyond the largest power of two come from
    between."""
    power = 1 << int(log2(heads))
    slopes = [2 ** (-most * (index + 1) / power) for index in range(power)]
    between = [2 ** (-most * (2 * index + 1) / (2 * power)) for index in range(heads - power)]
    return (*slopes, *between)


def bloom(config: Config) -> Decoder:
    require_settings(config, apply_residual_connection_post_layernorm=False)
    norm = config.layer_norm
    attention = config.attention(rotary=None, slopes=alibi_slopes(config.head_sizes[0]))
    return replace(stack(config, attention, Mlp("gelu_new"), norm), embedding_norm=norm)


def mpt(config: Config) -> Decoder:
    settings = config.get("attn_config") or {}
    require_settings(settings, alibi=True, prefix_lm=False, qk_ln=False, attn_type="multihead_attention")
    require_settings(config, norm_type="low_precision_layernorm", logit_scale=None, embedding_fraction=1.0)
    clip = settings.get("clip_qkv", config.get("clip_qkv")) or None
    most = float(settings.get("alibi_bias_max") or config.get("alibi_bias_max", 8.0))
    slopes = alibi_slopes(config.head_sizes[0], most)
    attention = config.attention(rotary=None, scale=settings.get("softmax_scale"), slopes=slopes, clip=clip)
    return stack(config, attention, Mlp("gelu"), LayerNorm(float(config.get("layer_norm_eps", 1e-5))))


BLOOM: Names = {
    **with_optional_prefix(
        "transformer.",
        {
            "word_embeddings": "tok_embeddings",
            "word_embeddings_layernorm": "embedding_norm",
            "ln_f": "norm",
            "h.{}.input_layernorm": "layers.{}.attention_norm",
            "h.{}.self_attention.query_key_value": split_grouped_qkv,
            "h.{}.self_attention.dense": "layers.{}.attention.wo",
            "h.{}.post_attention_layernorm": "layers.{}.ffn_norm",
            "h.{}.mlp.dense_h_to_4h": "layers.{}.feed_forward.w1",
            "h.{}.mlp.dense_4h_to_h": "layers.{}.feed_forward.w2",
        },
    ),
    "lm_head": "output",
}
MPT: Names = {
    "transformer.wte": "tok_embeddings",
    "transformer.norm_f": "norm",
    "transformer.blocks.{}.norm_1": "layers.{}.attention_norm",
    "transformer.blocks.{}.attn.Wqkv": split_qkv,
    "transformer.blocks.{}.attn.out_proj": "layers.{}.attention.wo",
    "transformer.blocks.{}.norm_2": "layers.{}.ffn_norm",
    "transformer.blocks.{}.ffn.up_proj": "layers.{}.feed_forward.w1",
    "transformer.blocks.{}.ffn.down_proj": "layers.{}.feed_forward.w2",
    "lm_head": "output",
}
GGUF_NAMES: Names = {
    **GGUF_PLAIN_MLP,
    "token_embd_norm": "embedding_norm",
    "blk.{}.attn_qkv": split_qkv,
}
_BLOOM_KEYS = {
    "hidden_size": "n_embed",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "layer_norm_eps": "layer_norm_epsilon",
}
_MPT_KEYS = {
    "hidden_size": "d_model",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "max_position_embeddings": "max_seq_len",
    "layer_norm_eps": "layer_norm_epsilon",
}
FAMILIES = {
    "bloom": Family(bloom, BLOOM, GGUF_NAMES, _BLOOM_KEYS),
    "mpt": Family(mpt, MPT, GGUF_NAMES, _MPT_KEYS),
}
