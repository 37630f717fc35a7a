"""Mixtral: Mistral with experts. GGUF files have the architecture `llama`, with experts."""

from __future__ import annotations

from dataclasses import replace

from pteron.llm.architectures import llama
from pteron.llm.architectures.experts import experts_of
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.names import HUGGING_FACE, Config
from pteron.llm.architectures.parts import Decoder


def decoder(config: Config) -> Decoder:
    windowed = replace(llama.attention(config), window=config.get("sliding_window"))
    experts = experts_of(config)
    return llama.decoder(config, lambda _: windowed, feed=lambda _: experts)


NAMES = {
    **HUGGING_FACE,
    "model.layers.{}.block_sparse_moe.gate": "layers.{}.feed_forward.router",
    **{
        f"model.layers.{{}}.block_sparse_moe.{expert}": f"layers.{{}}.feed_forward.{expert}"
        for expert in ("experts.{}.w1", "experts.{}.w2", "experts.{}.w3")
    },
}
FAMILIES = {"mixtral": Family(decoder, NAMES)}
