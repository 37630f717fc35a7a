"""Mistral: Llama, in older models with a sliding window. Ministral has one in the layers that it lists."""

from __future__ import annotations

from dataclasses import replace

from pteron.llm.architectures import llama
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.names import HUGGING_FACE, Config
from pteron.llm.architectures.parts import Decoder


def decoder(config: Config) -> Decoder:
    windowed = replace(llama.attention(config), window=config.get("sliding_window"))
    return llama.decoder(config, lambda _: windowed)


def ministral(config: Config) -> Decoder:
    if not config.get("layer_types"):
        return decoder(config)
    plain = llama.attention(config)
    return llama.decoder(config, llama.by_layer(config, plain, plain, every=1))


# GGUF files have the architecture `llama`.
FAMILIES = {"mistral": Family(decoder, HUGGING_FACE), "ministral": Family(ministral, HUGGING_FACE)}
