"""StarCoder 2: layer norms, biases, a plain MLP, in some models a sliding window."""

from __future__ import annotations

from dataclasses import replace

from pteron.llm.architectures import llama
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.names import GGUF, HUGGING_FACE, Config
from pteron.llm.architectures.parts import Block, Decoder, LayerNorm, Mlp


def decoder(config: Config) -> Decoder:
    norm = LayerNorm(float(config.get("norm_epsilon") or config["layer_norm_eps"]))
    attention = replace(llama.attention(config), window=config.get("sliding_window"))
    block = Block(attention, Mlp(config.get("hidden_act", "gelu_pytorch_tanh")), norm)
    return Decoder((block,) * int(config["num_hidden_layers"]), norm)


NAMES = {
    **HUGGING_FACE,
    "model.layers.{}.mlp.c_fc": "layers.{}.feed_forward.w1",
    "model.layers.{}.mlp.c_proj": "layers.{}.feed_forward.w2",
}
GGUF_NAMES = {**GGUF, "blk.{}.ffn_up": "layers.{}.feed_forward.w1"}
FAMILIES = {"starcoder2": Family(decoder, NAMES, GGUF_NAMES)}
