"""Families with experts that are otherwise Llama, or a family of dense.py, and the names of their tensors."""

from __future__ import annotations

from dataclasses import replace

from pteron.errors import UnsupportedError
from pteron.llm.architectures import dense
from pteron.llm.architectures.config import Config
from pteron.llm.architectures.dense import GRANITE_KEYS
from pteron.llm.architectures.experts import (
    EXPERTS,
    GGUF_EXPERTS,
    experts_of,
    flattened,
    halved,
    sigmoid_experts,
)
from pteron.llm.architectures.family import Family, stack
from pteron.llm.architectures.names import GGUF, GGUF_INTERLEAVED, HUGGING_FACE, INTERLEAVED, Names
from pteron.llm.architectures.parts import Decoder, IfPresent, Part


def mixtral(config: Config) -> Decoder:
    """Mistral with experts."""
    return stack(config, config.attention(window=config.window), experts_of(config))


def granite_moe(config: Config) -> Decoder:
    return dense.granite(config, mlp=experts_of(config))


def glm4_moe(config: Config) -> Decoder:
    """GLM-4.5 and 4.6: rotary embeddings of a part of each head, experts in groups, a shared MLP."""
    norm = config.norm if config.get("use_qk_norm") else IfPresent(config.norm)
    return stack(config, config.attention(head_norm=norm), sigmoid_experts(config))


def ernie4_5_moe(config: Config) -> Decoder:
    """Choices corrected by a bias."""
    shared = config.mlp if config.get("moe_num_shared_experts") else None
    experts = experts_of(config, shared, has_correction=True)
    first, last = int(config["moe_layer_start_index"]), int(config["moe_layer_end_index"])
    interval = int(config.get("moe_layer_interval", 1))
    with_experts = range(first, last + 1 if last >= 0 else len(config.layers))
    mlps = [
        experts if layer in with_experts and (layer + 1) % interval == 0 else config.mlp
        for layer in config.layers
    ]
    return stack(config, mlp=mlps)


def _ernie_from_gguf(config: Config) -> Config:
    return config.changed(
        moe_layer_start_index=config.get("first_k_dense_replace", 0),
        moe_layer_end_index=-1,
        moe_layer_interval=config.get("interleave_moe_layer_step") or 1,
        moe_num_shared_experts=config.get("n_shared_experts", 0),
    )


def qwen2_moe(config: Config) -> Decoder:
    """With a shared expert. Every second layer has a window, up to `max_window_layers`."""
    last = int(config.get("max_window_layers") or 0)
    attentions = [config.attention()] * len(config.layers)
    windowed = config.windowed(attentions, lambda layer: layer < last and layer % 2 == 0)
    return stack(config, windowed, qwen_experts(config, has_shared=True))


def qwen3_moe(config: Config) -> Decoder:
    """Norms of each head. All layers have windows or none."""
    attentions = [config.attention(head_norm=config.norm)] * len(config.layers)
    windowed = config.changed(layer_types=None).windowed(attentions, lambda _: True)
    return stack(config, windowed, qwen_experts(config))


def olmoe(config: Config) -> Decoder:
    """Norms of whole queries and keys."""
    if config.get("clip_qkv") is not None:
        raise UnsupportedError("bounds of queries, keys and values (clip_qkv)")
    return stack(config, config.attention(projection_norm=config.norm), qwen_experts(config))


def qwen_experts(config: Config, *, has_shared: bool = False) -> list[Part]:
    """Experts in all layers but those that the configuration excludes."""
    is_normalised = bool(config.get("norm_topk_prob", config.get("model_type") == "qwen3moe"))
    experts = experts_of(config, config.mlp if has_shared else None, normalised=is_normalised)
    experts = replace(experts, shared_gate=has_shared)
    step, excluded = int(config.get("decoder_sparse_step") or 1), config.get("mlp_only_layers") or ()
    return [
        experts if layer not in excluded and (layer + 1) % step == 0 else config.mlp
        for layer in config.layers
    ]


_FEED, _SPARSE = "layers.{}.feed_forward", "model.layers.{}.block_sparse_moe"
_MIXTRAL: Names = {
    **HUGGING_FACE,
    f"{_SPARSE}.gate": f"{_FEED}.router",
    **{f"{_SPARSE}.experts.{{}}.{name}": f"{_FEED}.experts.{{}}.{name}" for name in ("w1", "w2", "w3")},
}
GRANITE_MOE: Names = {
    **HUGGING_FACE,
    f"{_SPARSE}.router.layer": f"{_FEED}.router",
    f"{_SPARSE}.input_linear": halved(f"{_FEED}.experts.w1", f"{_FEED}.experts.w3"),
    f"{_SPARSE}.output_linear": flattened(f"{_FEED}.experts.w2"),
}
_QWEN, _QWEN_GGUF = {**HUGGING_FACE, **EXPERTS}, {**GGUF, **GGUF_EXPERTS}
GGUF_INTERLEAVED_EXPERTS: Names = {**GGUF_INTERLEAVED, **GGUF_EXPERTS}
FAMILIES = {
    "ernie4_5_moe": Family(
        ernie4_5_moe,
        {**INTERLEAVED, **EXPERTS},
        GGUF_INTERLEAVED_EXPERTS,
        architecture="ernie4_5-moe",
        from_gguf=_ernie_from_gguf,
    ),
    "glm4_moe": Family(
        glm4_moe,
        _QWEN,
        {**_QWEN_GGUF, "blk.{}.post_attention_norm": "layers.{}.ffn_norm"},
        architecture="glm4moe",
    ),
    "granitemoe": Family(granite_moe, GRANITE_MOE, GGUF_INTERLEAVED_EXPERTS, GRANITE_KEYS),
    "mixtral": Family(mixtral, _MIXTRAL),  # GGUF files have the architecture `llama`
    "olmoe": Family(olmoe, _QWEN, _QWEN_GGUF),
    "qwen2_moe": Family(qwen2_moe, _QWEN, _QWEN_GGUF, architecture="qwen2moe"),
    "qwen3_moe": Family(qwen3_moe, _QWEN, _QWEN_GGUF, architecture="qwen3moe"),
}
