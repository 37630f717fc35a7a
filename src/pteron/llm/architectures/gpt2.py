"""GPT-2: learned positions, layer norms, biases; matrices are stored transposed."""

from __future__ import annotations

from dataclasses import replace

from pteron.llm.architectures.config import Config
from pteron.llm.architectures.family import Family, require_settings, stack
from pteron.llm.architectures.names import GGUF_PLAIN_MLP, Names, split_qkv, transposed, with_optional_prefix
from pteron.llm.architectures.parts import Decoder, Mlp


def decoder(config: Config) -> Decoder:
    require_settings(config, add_cross_attention=False)
    scale = config.head_sizes[2] ** -0.5 if config.get("scale_attn_weights", True) else 1.0
    by_depth = bool(config.get("scale_attn_by_inverse_layer_idx"))
    attentions = [
        config.attention(rotary=None, scale=scale / (layer + 1 if by_depth else 1)) for layer in config.layers
    ]
    mlp = Mlp(config.activation("gelu_new"))
    return replace(stack(config, attentions, mlp, config.layer_norm), has_positions=True)


NAMES: Names = {
    **with_optional_prefix(
        "transformer.",
        {
            "wte": "tok_embeddings",
            "wpe": "positions",
            "ln_f": "norm",
            "h.{}.ln_1": "layers.{}.attention_norm",
            "h.{}.attn.c_attn": transposed(split_qkv),
            "h.{}.attn.c_proj": transposed("layers.{}.attention.wo"),
            "h.{}.ln_2": "layers.{}.ffn_norm",
            "h.{}.mlp.c_fc": transposed("layers.{}.feed_forward.w1"),
            "h.{}.mlp.c_proj": transposed("layers.{}.feed_forward.w2"),
            "h.{}.attn.bias": None,  # masks
            "h.{}.attn.masked_bias": None,
        },
    ),
    "lm_head": "output",
}
GGUF_NAMES: Names = {
    **GGUF_PLAIN_MLP,
    "position_embd": "positions",
    "blk.{}.attn_qkv": split_qkv,
}
KEYS = {
    "hidden_act": "activation_function",
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "layer_norm_eps": "layer_norm_epsilon",
}
FAMILIES = {"gpt2": Family(decoder, NAMES, GGUF_NAMES, KEYS)}
