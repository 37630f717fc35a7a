"""Qwen2, with biases of queries, keys and values; Qwen3, with norms of each head. A sliding window is off in
most of their models."""

from __future__ import annotations

from dataclasses import replace

from pteron.llm.architectures import llama
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.names import GGUF, HUGGING_FACE, Config
from pteron.llm.architectures.parts import Attention, Decoder, RmsNorm


def qwen2(config: Config) -> Decoder:
    return _decoder(config, llama.attention(config))


def qwen3(config: Config) -> Decoder:
    norm = RmsNorm(float(config["rms_norm_eps"]))
    return _decoder(config, replace(llama.attention(config), head_norm=norm))


def _decoder(config: Config, full: Attention) -> Decoder:
    if not config.get("use_sliding_window") or not config.get("sliding_window"):
        return llama.decoder(config, lambda _: full)
    windowed = replace(full, window=int(config["sliding_window"]))
    kinds, first = config.get("layer_types"), int(config.get("max_window_layers", 0))

    def attend(layer: int) -> Attention:
        is_windowed = kinds[layer] == "sliding_attention" if kinds else layer >= first
        return windowed if is_windowed else full

    return llama.decoder(config, attend)


FAMILIES = {"qwen2": Family(qwen2, HUGGING_FACE, GGUF), "qwen3": Family(qwen3, HUGGING_FACE, GGUF)}
