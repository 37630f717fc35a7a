"""SmolLM3: Llama, with every fourth layer without positions (NoPE). SmolLM2 is a plain Llama."""

from __future__ import annotations

from dataclasses import replace

from pteron.llm.architectures import llama
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.llama import GGUF_INTERLEAVED
from pteron.llm.architectures.names import HUGGING_FACE, Config
from pteron.llm.architectures.parts import Attention, Decoder


def decoder(config: Config) -> Decoder:
    rotated = llama.attention(config)
    plain = replace(rotated, rotary=None)
    stated = config.get("no_rope_layers")  # 1 for layers that have positions
    interval = int(config.get("no_rope_layer_interval") or 4)

    def attend(layer: int) -> Attention:
        has_positions = stated[layer] if stated else (layer + 1) % interval
        return rotated if has_positions else plain

    windowed = llama.with_windows(config, attend, lambda layer: attend(layer) is plain)
    return llama.decoder(config, windowed)


FAMILIES = {"smollm3": Family(decoder, HUGGING_FACE, GGUF_INTERLEAVED)}
