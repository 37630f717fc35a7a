"""Llama 4, its text model: experts whose inputs are scaled, layers without positions, norms without weights.

Attention in chunks, and the temperature of layers without positions, begin at 8,192 tokens; contexts up to
there do without them, longer ones are refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pteron.errors import UnsupportedError
from pteron.llm.architectures import llama
from pteron.llm.architectures.experts import GGUF_EXPERTS, chosen_of, count_of, experts_of, flattened
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.llama import GGUF_INTERLEAVED
from pteron.llm.architectures.names import HUGGING_FACE, Config, Names, halves, of_text_model
from pteron.llm.architectures.parts import Attention, Decoder, GatedMlp, Part
from pteron.llm.build.graph import Tensor
from pteron.llm.build.network import Network
from pteron.llm.build.stored_tensor import StoredTensor


@dataclass(frozen=True)
class UnitNorm:
    """An RMS norm without weights. It commutes with rotations."""

    eps: float

    def __call__(self, net: Network, x: Tensor, place: str) -> Tensor:
        ones = net.computed(np.ones(x.shape[-1], np.float32))
        return net.graph.call("et_vk.rms_norm.default", x, ones, float(np.float32(self.eps)), out=x.sizes)


@dataclass(frozen=True)
class ShortAttention:
    """Attention of contexts of at most `limit` tokens."""

    attention: Attention
    limit: int

    def __call__(self, net: Network, x: Tensor, place: str) -> Tensor:
        if net.context > self.limit:
            raise UnsupportedError(
                f"a context of {net.context} tokens; Llama 4 has at most {self.limit} here"
            )
        net.limit_context(self.limit)
        return self.attention(net, x, place)


def decoder(config: Config) -> Decoder:
    if chosen_of(config) != 1:
        raise UnsupportedError(f"Llama 4 with {chosen_of(config)} experts per token, not 1")
    shared = GatedMlp(config.get("hidden_act", "silu"))
    experts = replace(experts_of(config, shared, scoring="sigmoid", normalised=False), scales_input=True)
    limit = int(config.get("attention_chunk_size") or 8192)
    if config.get("attn_temperature_tuning"):
        limit = min(limit, int(config.get("floor_scale") or 8192) - 1)
    rotated = llama.attention(config)
    plain = replace(rotated, rotary=None)
    if config.get("use_qk_norm"):
        rotated = replace(rotated, head_norm=UnitNorm(float(config["rms_norm_eps"])))
    has_positions = config.get("no_rope_layers")
    interval = int(config.get("no_rope_layer_interval") or 4)
    step = int(config.get("interleave_moe_layer_step") or 1)
    sparse = config.get("moe_layers")

    def attend(layer: int) -> Part:
        is_rotated = has_positions[layer] if has_positions else (layer + 1) % interval
        return ShortAttention(rotated if is_rotated else plain, limit)

    def feed(layer: int) -> Part | None:
        return experts if (layer in sparse if sparse is not None else (layer + 1) % step == 0) else None

    return llama.decoder(config, attend, feed=feed)


def _from_gguf(config: Config) -> Config:
    """Files do not state what these models have in common; the one of 128 experts has no norms of heads."""
    if config.get("sliding_window") == 0:
        raise UnsupportedError("Llama 4 without attention in chunks (attention.sliding_window is 0)")
    return config | {
        "attention_chunk_size": 8192,
        "attn_temperature_tuning": True,
        "use_qk_norm": count_of(config) != 128,
    }


def _gate_and_up(_: Config, tensor: StoredTensor) -> dict[str, StoredTensor]:
    """[experts, columns, rows of gate, then of up]."""
    half = tensor.shape[2] // 2
    return {
        f"{_FEED}.experts.w1.weight": tensor.flattened(lambda matrix: matrix.T[:half]),
        f"{_FEED}.experts.w3.weight": tensor.flattened(lambda matrix: matrix.T[half:]),
    }


_FEED = "layers.{}.feed_forward"
_KINDS = {"gate": "w1", "down": "w2", "up": "w3"}
NAMES: Names = {
    **HUGGING_FACE,
    "model.layers.{}.self_attn.q_proj": halves("layers.{}.attention.wq", "num_attention_heads"),
    "model.layers.{}.self_attn.k_proj": halves("layers.{}.attention.wk", "num_key_value_heads"),
    "model.layers.{}.feed_forward.router": f"{_FEED}.router",
    "model.layers.{}.feed_forward.experts.gate_up_proj": _gate_and_up,
    "model.layers.{}.feed_forward.experts.down_proj": flattened(
        f"{_FEED}.experts.w2.weight", lambda down: down.T
    ),
    **{f"model.layers.{{}}.feed_forward.{kind}_proj": f"{_FEED}.{ours}" for kind, ours in _KINDS.items()},
    **{
        f"model.layers.{{}}.feed_forward.shared_expert.{kind}_proj": f"{_FEED}.shared.{ours}"
        for kind, ours in _KINDS.items()
    },
}
GGUF_NAMES: Names = {**GGUF_INTERLEAVED, **GGUF_EXPERTS}
FAMILIES = {
    "llama4": Family(decoder, of_text_model(NAMES), GGUF_NAMES, from_gguf=_from_gguf),
    "llama4_text": Family(decoder, NAMES),
}
