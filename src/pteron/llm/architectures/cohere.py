"""Command R: attention and MLP in parallel after one layer norm, rotary pairs as neighbours, scaled logits.
Command R7B and A: three of four layers have windows, the others no positions."""

from __future__ import annotations

from dataclasses import replace

from pteron.llm.architectures.config import Config
from pteron.llm.architectures.family import Family, Layers, stack
from pteron.llm.architectures.names import GGUF, HUGGING_FACE
from pteron.llm.architectures.parts import Decoder, HeadLayerNorm, IfPresent


def cohere(config: Config) -> Decoder:
    of_heads = HeadLayerNorm(config.layer_norm.eps)
    norm = of_heads if config.get("use_qk_norm") else IfPresent(of_heads)
    return _decoder(config, config.attention(interleaved=True, head_norm=norm))


def cohere2(config: Config) -> Decoder:
    rotated = config.attention(interleaved=True, window=config.window)
    return _decoder(config, config.alternating(rotated, config.attention(rotary=None), every=4))


def _decoder(config: Config, attention: Layers) -> Decoder:
    decoder = stack(config, attention, norm=config.layer_norm, parallel=True)
    return replace(decoder, logit_scale=float(config.get("logit_scale", 0.0625)))


FAMILIES = {
    "cohere": Family(cohere, HUGGING_FACE, GGUF, architecture="command-r"),
    "cohere2": Family(cohere2, HUGGING_FACE, GGUF),
}
