"""Mistral: Llama, in older models with a sliding window. Ministral has one in the layers that it lists.
Ministral 3 has queries that grow with their position."""

from __future__ import annotations

from dataclasses import replace

from pteron.llm.architectures import llama
from pteron.llm.architectures.experts import GGUF_EXPERTS
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.names import HUGGING_FACE, Config, of_text_model
from pteron.llm.architectures.parts import Decoder


def decoder(config: Config) -> Decoder:
    windowed = replace(llama.attention(config), window=config.get("sliding_window"))
    return llama.decoder(config, lambda _: windowed)


def ministral(config: Config) -> Decoder:
    if not config.get("layer_types"):
        return decoder(config)
    plain = llama.attention(config)
    return llama.decoder(config, llama.by_layer(config, plain, plain, every=1))


def ministral3(config: Config) -> Decoder:
    """Also Mistral Small 3: without `llama_4_scaling_beta`, it is Mistral."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    beta = float(rope.get("llama_4_scaling_beta") or 0)
    temperature = (beta, int(rope["original_max_position_embeddings"])) if beta else None
    windowed = replace(llama.attention(config), window=config.get("sliding_window"), temperature=temperature)
    return llama.decoder(config, lambda _: windowed)


def _from_gguf(config: Config) -> Config:
    beta = config.get("attention.temperature_scale")
    return config | {"rope_parameters": config["rope_parameters"] | {"llama_4_scaling_beta": beta}}


# GGUF files of the first two have the architecture `llama`.
FAMILIES = {
    "mistral": Family(decoder, HUGGING_FACE),
    "ministral": Family(ministral, HUGGING_FACE),
    "ministral3": Family(ministral3, HUGGING_FACE),
    "mistral3": Family(
        ministral3,
        of_text_model(HUGGING_FACE),
        {**llama.GGUF_INTERLEAVED, **GGUF_EXPERTS},
        from_gguf=_from_gguf,
    ),
}
