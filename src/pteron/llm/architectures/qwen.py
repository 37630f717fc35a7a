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
    return _decoder(config, head_norms(config))


def head_norms(config: Config) -> Attention:
    """Attention with norms of each head."""
    return replace(llama.attention(config), head_norm=RmsNorm(float(config["rms_norm_eps"])))


def _decoder(config: Config, full: Attention) -> Decoder:
    """Layers from `max_window_layers` on have windows."""
    first = int(config.get("max_window_layers") or 0)
    return llama.decoder(config, llama.with_windows(config, lambda _: full, lambda layer: layer >= first))


FAMILIES = {"qwen2": Family(qwen2, HUGGING_FACE, GGUF), "qwen3": Family(qwen3, HUGGING_FACE, GGUF)}
