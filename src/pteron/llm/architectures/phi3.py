"""Phi-3, Phi-3.5 and Phi-4: Llama, with queries, keys and values in one matrix, gate and up in another."""

from __future__ import annotations

from dataclasses import replace

from pteron.llm.architectures import llama
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.names import GGUF, HUGGING_FACE, Config, split
from pteron.llm.architectures.parts import Decoder


def decoder(config: Config) -> Decoder:
    attention = replace(llama.attention(config), window=config.get("sliding_window"))
    return llama.decoder(config, lambda _: attention)


def _projections(config: Config) -> dict[str, int]:
    attention = llama.attention(config)
    queries, keys = attention.heads * attention.head_dim, attention.kv_heads * attention.head_dim
    return {
        f"layers.{{}}.attention.w{kind}": rows
        for kind, rows in zip("qkv", (queries, keys, keys), strict=True)
    }


def _gates(config: Config) -> dict[str, int]:
    rows = int(config["intermediate_size"])
    return {"layers.{}.feed_forward.w1": rows, "layers.{}.feed_forward.w3": rows}


NAMES = {
    **HUGGING_FACE,
    "model.layers.{}.self_attn.qkv_proj": split(_projections),
    "model.layers.{}.mlp.gate_up_proj": split(_gates),
}
GGUF_NAMES = {**GGUF, "blk.{}.attn_qkv": split(_projections), "blk.{}.ffn_up": split(_gates)}
FAMILIES = {"phi3": Family(decoder, NAMES, GGUF_NAMES)}
