"""Nemotron and Minitron: layer norms whose weights are stored without 1, a plain MLP with ReLU², rotary
embeddings of a part of each head."""

from __future__ import annotations

from pteron.llm.architectures import llama
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.llama import PLAIN_MLP
from pteron.llm.architectures.names import GGUF, Config, Names, plus_one
from pteron.llm.architectures.parts import Block, Decoder, LayerNorm, Mlp


def decoder(config: Config) -> Decoder:
    norm = LayerNorm(float(config.get("norm_eps") or config["layer_norm_eps"]))
    block = Block(llama.attention(config), Mlp(config.get("hidden_act", "relu2")), norm)
    return Decoder((block,) * int(config["num_hidden_layers"]), norm)


NORMS = {
    "model.norm": "norm",
    "model.layers.{}.input_layernorm": "layers.{}.attention_norm",
    "model.layers.{}.post_attention_layernorm": "layers.{}.ffn_norm",
}
NAMES: Names = {**{f"{name}.weight": plus_one(place) for name, place in NORMS.items()}, **PLAIN_MLP}
GGUF_NAMES = {**GGUF, "blk.{}.ffn_up": "layers.{}.feed_forward.w1"}  # norms' weights include the 1
FAMILIES = {"nemotron": Family(decoder, NAMES, GGUF_NAMES)}
