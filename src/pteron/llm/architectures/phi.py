"""Phi-1, Phi-1.5 and Phi-2: attention and MLP in parallel after one layer norm, biases everywhere, rotary
embeddings of a part of each head."""

from __future__ import annotations

from dataclasses import replace

from pteron.llm.architectures import llama
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.names import GGUF, HUGGING_FACE, Config, split_qkv
from pteron.llm.architectures.parts import Block, Decoder, LayerNorm, Mlp


def decoder(config: Config) -> Decoder:
    norm = LayerNorm(float(config["layer_norm_eps"]))
    attention = replace(llama.attention(config), head_norm=norm if config.get("qk_layernorm") else None)
    block = Block(attention, Mlp(config.get("hidden_act", "gelu_new")), norm, parallel=True)
    return Decoder((block,) * int(config["num_hidden_layers"]), norm)


NAMES = {
    **HUGGING_FACE,
    "model.final_layernorm": "norm",
    "model.layers.{}.self_attn.dense": "layers.{}.attention.wo",
    "model.layers.{}.self_attn.q_layernorm": "layers.{}.attention.q_norm_fn",
    "model.layers.{}.self_attn.k_layernorm": "layers.{}.attention.k_norm_fn",
    "model.layers.{}.mlp.fc1": "layers.{}.feed_forward.w1",
    "model.layers.{}.mlp.fc2": "layers.{}.feed_forward.w2",
}
GGUF_NAMES = {**GGUF, "blk.{}.attn_qkv": split_qkv, "blk.{}.ffn_up": "layers.{}.feed_forward.w1"}
FAMILIES = {"phi": Family(decoder, NAMES, GGUF_NAMES, architecture="phi2")}
