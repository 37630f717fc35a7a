"""Command R: attention and MLP in parallel after one norm, rotary pairs as neighbours, scaled logits."""

from __future__ import annotations

from pteron.llm.architectures import llama
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.llama import GGUF_INTERLEAVED
from pteron.llm.architectures.names import HUGGING_FACE, Config, halves
from pteron.llm.architectures.parts import Block, Decoder, GatedMlp, LayerNorm


def decoder(config: Config) -> Decoder:
    norm = LayerNorm(float(config["layer_norm_eps"]))
    block = Block(llama.attention(config), GatedMlp(config.get("hidden_act", "silu")), norm, parallel=True)
    layers = (block,) * int(config["num_hidden_layers"])
    return Decoder(layers, norm, logit_scale=float(config.get("logit_scale", 0.0625)))


NAMES = {
    **HUGGING_FACE,
    "model.layers.{}.self_attn.q_proj": halves("layers.{}.attention.wq", "num_attention_heads"),
    "model.layers.{}.self_attn.k_proj": halves("layers.{}.attention.wk", "num_key_value_heads"),
}
FAMILIES = {
    "cohere": Family(decoder, NAMES),
    "command-r": Family(decoder, NAMES, GGUF_INTERLEAVED),  # the name in GGUF files
}
