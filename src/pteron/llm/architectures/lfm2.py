"""LFM2: layers with gated short convolutions, and some with attention; LFM2-MoE with experts after the first
layers."""

from __future__ import annotations

from pteron.llm.architectures.config import Config
from pteron.llm.architectures.experts import GGUF_EXPERTS, count_of, sigmoid_experts
from pteron.llm.architectures.family import Family, require_settings, stack
from pteron.llm.architectures.names import GGUF, HUGGING_FACE, Names, split
from pteron.llm.architectures.parts import Decoder, Part
from pteron.llm.architectures.recurrent import short_conv, taps
from pteron.llm.network.graph import Tensor
from pteron.llm.network.network import Network


def _mixer(net: Network, x: Tensor, place: str) -> Tensor:
    """wo(c * conv(b * v)), where b, c and v are projections of x."""
    b, c, v = (net.linear(x, f"{place}.{name}") for name in ("wb", "wc", "wx"))
    mixed = short_conv(net, net.multiply(b, v), f"{place}.conv")
    return net.linear(net.multiply(c, mixed), f"{place}.wo")


def decoder(config: Config) -> Decoder:
    require_settings(config, use_expert_bias=True)
    attention, full = config.attention(head_norm=config.norm), config.get("full_attn_idxs")
    is_full = config.is_full(lambda layer: full is None or layer in full)
    parts: list[Part] = [attention if each else _mixer for each in is_full]
    return stack(config, parts, sigmoid_experts(config) if count_of(config) else None)


def _projections(config: Config) -> dict[str, int]:
    return {f"layers.{{}}.attention.{name}": int(config["hidden_size"]) for name in ("wb", "wc", "wx")}


_FEED = "layers.{}.feed_forward"
_LAYER = "model.layers.{}"
NAMES: Names = {
    **HUGGING_FACE,
    "model.embedding_norm": "norm",
    f"{_LAYER}.operator_norm": "layers.{}.attention_norm",
    f"{_LAYER}.ffn_norm": "layers.{}.ffn_norm",
    f"{_LAYER}.self_attn.out_proj": "layers.{}.attention.wo",
    f"{_LAYER}.self_attn.q_layernorm": "layers.{}.attention.q_norm_fn",
    f"{_LAYER}.self_attn.k_layernorm": "layers.{}.attention.k_norm_fn",
    f"{_LAYER}.conv.in_proj": split(_projections),
    f"{_LAYER}.conv.conv": taps("layers.{}.attention.conv"),
    f"{_LAYER}.conv.out_proj": "layers.{}.attention.wo",
    **{f"{_LAYER}.feed_forward.{kind}": f"{_FEED}.{kind}" for kind in ("w1", "w2", "w3")},
    f"{_LAYER}.feed_forward.gate": f"{_FEED}.router",
    f"{_LAYER}.feed_forward.expert_bias": f"{_FEED}.correction",
    **{
        f"{_LAYER}.feed_forward.experts.{{}}.{kind}": f"{_FEED}.experts.{{}}.{kind}"
        for kind in ("w1", "w2", "w3")
    },
}
GGUF_NAMES: Names = {
    **GGUF,
    **GGUF_EXPERTS,
    "token_embd_norm": "norm",
    "blk.{}.shortconv.in_proj": split(_projections),
    "blk.{}.shortconv.conv": taps("layers.{}.attention.conv"),
    "blk.{}.shortconv.out_proj": "layers.{}.attention.wo",
}
_KEYS = {"rms_norm_eps": "norm_eps", "first_k_dense_replace": "num_dense_layers"}
FAMILIES = {
    "lfm2": Family(decoder, NAMES, GGUF_NAMES, _KEYS),
    "lfm2_moe": Family(decoder, NAMES, GGUF_NAMES, _KEYS, architecture="lfm2moe"),
}
