"""OLMo 2: norms of the results of attention and MLP, not of their inputs; norms of whole queries and keys."""

from __future__ import annotations

from dataclasses import replace

from pteron.llm.architectures import llama
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.names import GGUF, HUGGING_FACE, Config
from pteron.llm.architectures.parts import Block, Decoder, GatedMlp, RmsNorm


def decoder(config: Config) -> Decoder:
    norm = RmsNorm(float(config["rms_norm_eps"]))
    attention = replace(llama.attention(config), projection_norm=norm)
    block = Block(attention, GatedMlp(config.get("hidden_act", "silu")), norm=None, result_norm=norm)
    return Decoder((block,) * int(config["num_hidden_layers"]), norm)


NAMES = {
    **HUGGING_FACE,
    "model.layers.{}.post_attention_layernorm": "layers.{}.attention_result_norm",
    "model.layers.{}.post_feedforward_layernorm": "layers.{}.ffn_result_norm",
}
GGUF_NAMES = {
    **GGUF,
    "blk.{}.post_attention_norm": "layers.{}.attention_result_norm",
    "blk.{}.post_ffw_norm": "layers.{}.ffn_result_norm",
}
FAMILIES = {"olmo2": Family(decoder, NAMES, GGUF_NAMES)}
