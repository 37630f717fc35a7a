"""Phi-3, Phi-3.5 and Phi-4: Llama, with queries, keys and values in one matrix, gate and up in another."""

from __future__ import annotations

from dataclasses import replace

from pteron.llm.architectures import llama
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.names import GGUF, HUGGING_FACE, Config, split_gate_up, split_qkv
from pteron.llm.architectures.parts import Decoder


def decoder(config: Config) -> Decoder:
    attention = replace(llama.attention(config), window=config.get("sliding_window") or None)
    return llama.decoder(config, lambda _: attention)


NAMES = {
    **HUGGING_FACE,
    "model.layers.{}.self_attn.qkv_proj": split_qkv,
    "model.layers.{}.mlp.gate_up_proj": split_gate_up,
}
GGUF_NAMES = {**GGUF, "blk.{}.attn_qkv": split_qkv, "blk.{}.ffn_up": split_gate_up}
FAMILIES = {"phi3": Family(decoder, NAMES, GGUF_NAMES)}
