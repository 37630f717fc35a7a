"""Granite 4: Granite with mixers of Mamba-2 in most layers; some models have experts beside a shared MLP."""

from __future__ import annotations

from dataclasses import replace

from pteron.format.stored_tensor import StoredTensor
from pteron.llm.architectures.config import Config
from pteron.llm.architectures.dense import GRANITE_KEYS, granite, granite_attention
from pteron.llm.architectures.experts import count_of, experts_of
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.mamba2 import MIXER_GGUF, mixer, mixer_names
from pteron.llm.architectures.names import Names
from pteron.llm.architectures.parts import Attention, Decoder
from pteron.llm.architectures.sparse import GGUF_INTERLEAVED_EXPERTS, GRANITE_MOE


def decoder(config: Config) -> Decoder:
    kinds = config.get("layer_types") or config.get("layers_block_type") or ["mamba"] * len(config.layers)
    parts = [
        _attention(config) if kind in ("attention", "full_attention") else mixer(config) for kind in kinds
    ]
    return granite(config, parts, experts_of(config, config.mlp) if count_of(config) else None)


def _attention(config: Config) -> Attention:
    """Positions only where stated. Bamba's GGUF files have this architecture too, and no scale of scores."""
    attention = granite_attention(config)
    if config.get("position_embedding_type") != "rope" and not config.get("rope.scaling.finetuned"):
        attention = replace(attention, rotary=None)
    if "ssm.group_count" in config and "attention.scale" not in config:
        attention = replace(attention, scale=None)
    return attention


_FEED = "layers.{}.feed_forward"


def _shared(config: Config) -> str:
    """The place of the MLP of all tokens: beside experts, or in their place."""
    return f"{_FEED}.shared" if count_of(config) else _FEED


def _gate_and_up(config: Config, tensor: StoredTensor) -> dict[str, StoredTensor]:
    half, place = tensor.rows // 2, _shared(config)
    return {f"{place}.w1": tensor.sliced(0, half), f"{place}.w3": tensor.sliced(half, tensor.rows)}


NAMES: Names = {
    **GRANITE_MOE,
    "model.layers.{}.shared_mlp.input_linear": _gate_and_up,
    "model.layers.{}.shared_mlp.output_linear": lambda config, tensor: {f"{_shared(config)}.w2": tensor},
    **mixer_names("model.layers.{}.mamba"),
}
FAMILIES = {
    "granitemoehybrid": Family(
        decoder,
        NAMES,
        {**GGUF_INTERLEAVED_EXPERTS, **MIXER_GGUF},
        GRANITE_KEYS,
        architecture="granitehybrid",
    ),
}
