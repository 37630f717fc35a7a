"""Qwen2-MoE, with a shared expert; Qwen3-MoE, without; OLMoE: norms of whole queries and keys."""

from __future__ import annotations

from dataclasses import replace

from pteron.errors import UnsupportedError
from pteron.llm.architectures import llama, qwen
from pteron.llm.architectures.experts import EXPERTS, GGUF_EXPERTS, experts_of
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.names import GGUF, HUGGING_FACE, Config
from pteron.llm.architectures.parts import Block, Decoder, GatedMlp, RmsNorm


def qwen2_moe(config: Config) -> Decoder:
    """Every second layer has a window, up to `max_window_layers`."""
    full, last = llama.attention(config), int(config.get("max_window_layers") or 0)
    attend = llama.with_windows(config, lambda _: full, lambda layer: layer < last and layer % 2 == 0)
    return with_experts(llama.decoder(config, attend), config, has_shared=True)


def qwen3_moe(config: Config) -> Decoder:
    """All layers have windows or none."""
    full = qwen.head_norms(config)
    attend = llama.with_windows({**config, "layer_types": None}, lambda _: full, lambda _: True)
    return with_experts(llama.decoder(config, attend), config)


def olmoe(config: Config) -> Decoder:
    if config.get("clip_qkv") is not None:
        raise UnsupportedError("bounds of queries, keys and values (clip_qkv)")
    norm = RmsNorm(float(config["rms_norm_eps"]))
    attention = replace(llama.attention(config), projection_norm=norm)
    return with_experts(llama.decoder(config, lambda _: attention), config)


def with_experts(decoder: Decoder, config: Config, *, has_shared: bool = False) -> Decoder:
    """The decoder with experts in place of MLPs, in all layers but those that the configuration excludes."""
    is_normalised = bool(config.get("norm_topk_prob", config.get("model_type") == "qwen3moe"))
    shared = GatedMlp(config.get("hidden_act", "silu")) if has_shared else None
    experts = replace(experts_of(config, shared, normalised=is_normalised), shared_gate=has_shared)
    step, dense = int(config.get("decoder_sparse_step") or 1), config.get("mlp_only_layers") or ()

    def changed(index: int, block: object) -> Block:
        assert isinstance(block, Block)
        is_sparse = index not in dense and (index + 1) % step == 0
        return replace(block, mlp=experts) if is_sparse else block

    return replace(decoder, layers=tuple(changed(*layer) for layer in enumerate(decoder.layers)))


NAMES, GGUF_NAMES = {**HUGGING_FACE, **EXPERTS}, {**GGUF, **GGUF_EXPERTS}
FAMILIES = {
    "qwen2_moe": Family(qwen2_moe, NAMES, GGUF_NAMES, architecture="qwen2moe"),
    "qwen3_moe": Family(qwen3_moe, NAMES, GGUF_NAMES, architecture="qwen3moe"),
    "olmoe": Family(olmoe, NAMES, GGUF_NAMES),
}
