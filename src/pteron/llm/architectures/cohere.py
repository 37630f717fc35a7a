"""Command R: attention and MLP in parallel after one layer norm, rotary pairs as neighbours, scaled logits.
Command R7B and A: three of four layers have windows, the others no positions."""

from __future__ import annotations

from dataclasses import replace

from pteron.llm.architectures import llama
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.names import GGUF, HUGGING_FACE, Config
from pteron.llm.architectures.parts import (
    Attention,
    Block,
    Decoder,
    GatedMlp,
    HeadLayerNorm,
    IfPresent,
    LayerNorm,
)


def cohere(config: Config) -> Decoder:
    eps = float(config["layer_norm_eps"])
    plain = llama.attention(config, interleaved=True)
    norm = HeadLayerNorm(eps) if config.get("use_qk_norm") else IfPresent(HeadLayerNorm(eps))
    return _decoder(config, [replace(plain, head_norm=norm)] * int(config["num_hidden_layers"]))


def cohere2(config: Config) -> Decoder:
    rotated = llama.attention(config, interleaved=True)
    attend = llama.by_layer(config, rotated, replace(rotated, rotary=None), every=4)
    return _decoder(config, [attend(index) for index in range(int(config["num_hidden_layers"]))])


def _decoder(config: Config, attentions: list[Attention]) -> Decoder:
    norm, mlp = LayerNorm(float(config["layer_norm_eps"])), GatedMlp(config.get("hidden_act", "silu"))
    blocks = tuple(Block(attention, mlp, norm, parallel=True) for attention in attentions)
    return Decoder(blocks, norm, logit_scale=float(config.get("logit_scale", 0.0625)))


FAMILIES = {
    "cohere": Family(cohere, HUGGING_FACE, GGUF, architecture="command-r"),
    "cohere2": Family(cohere2, HUGGING_FACE, GGUF),
}
