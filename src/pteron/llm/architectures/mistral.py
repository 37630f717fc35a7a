"""Mistral: Llama, in older models with a sliding window."""

from __future__ import annotations

from dataclasses import replace

from pteron.llm.architectures import llama
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.names import HUGGING_FACE, Config
from pteron.llm.architectures.parts import Decoder


def decoder(config: Config) -> Decoder:
    windowed = replace(llama.attention(config), window=config.get("sliding_window", 4096))
    return llama.decoder(config, lambda _: windowed)


FAMILIES = {"mistral": Family(decoder, HUGGING_FACE)}  # GGUF files have the architecture `llama`
