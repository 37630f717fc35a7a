"""Llama 4, its text model: experts whose inputs are scaled, layers without positions, norms without weights.

Attention in chunks, and the temperature of layers without positions, begin at 8,192 tokens; contexts up to
there do without them, longer ones are refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pteron.errors import UnsupportedError
from pteron.format.stored_tensor import StoredTensor
from pteron.llm.architectures.config import Config
from pteron.llm.architectures.experts import chosen_of, count_of, experts_of, flattened
from pteron.llm.architectures.family import Family, stack
from pteron.llm.architectures.names import INTERLEAVED, Names, of_text_model
from pteron.llm.architectures.parts import Attention, Decoder
from pteron.llm.architectures.sparse import GGUF_INTERLEAVED_EXPERTS
from pteron.llm.network.graph import Tensor
from pteron.llm.network.network import Network


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
    experts = experts_of(config, config.mlp, scoring="sigmoid", normalised=False)
    experts = replace(experts, scales_input=True)
    limit = int(config.get("attention_chunk_size") or 8192)
    if config.get("attn_temperature_tuning"):
        limit = min(limit, int(config.get("floor_scale") or 8192) - 1)
    rotated = config.attention()
    plain = replace(rotated, rotary=None)
    if config.get("use_qk_norm"):
        rotated = replace(rotated, head_norm=UnitNorm(config.norm.eps))
    has_positions = config.get("no_rope_layers")
    interval = int(config.get("no_rope_layer_interval") or 4)
    step = int(config.get("interleave_moe_layer_step") or 1)
    sparse = config.get("moe_layers")
    if sparse is None:
        sparse = [layer for layer in config.layers if (layer + 1) % step == 0]
    is_rotated = has_positions or [(layer + 1) % interval for layer in config.layers]
    return stack(
        config,
        [ShortAttention(rotated if is_rotated[layer] else plain, limit) for layer in config.layers],
        [experts if layer in sparse else config.mlp for layer in config.layers],
    )


def _from_gguf(config: Config) -> Config:
    """Files do not state what these models have in common; the one of 128 experts has no norms of heads."""
    if config.get("sliding_window") == 0:
        raise UnsupportedError("Llama 4 without attention in chunks (attention.sliding_window is 0)")
    return config.changed(
        attention_chunk_size=8192, attn_temperature_tuning=True, use_qk_norm=count_of(config) != 128
    )


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
    **INTERLEAVED,
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
FAMILIES = {
    "llama4": Family(decoder, of_text_model(NAMES), GGUF_INTERLEAVED_EXPERTS, from_gguf=_from_gguf),
    "llama4_text": Family(decoder, NAMES),
}
