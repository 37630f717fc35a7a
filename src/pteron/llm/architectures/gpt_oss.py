"""gpt-oss: experts with biases and bounded gates, attention sinks, windows in every second layer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pteron.format.stored_tensor import StoredTensor
from pteron.llm.architectures.config import Config
from pteron.llm.architectures.experts import GGUF_EXPERTS, experts_of, flattened
from pteron.llm.architectures.family import Family, stack
from pteron.llm.architectures.names import GGUF, HUGGING_FACE, Names
from pteron.llm.architectures.parts import Decoder
from pteron.llm.network.graph import Tensor
from pteron.llm.network.network import Network


@dataclass(frozen=True)
class BoundedGate:
    """gate · sigmoid(alpha · gate) · (up + 1), with bounds."""

    alpha: float
    limit: float

    def __call__(self, net: Network, gate: Tensor, up: Tensor) -> Tensor:
        bounded = net.graph.call("aten.clamp.default", gate, None, self.limit, out=gate.sizes)
        sigmoid = net.unary("aten.sigmoid.default", net.scaled(bounded, self.alpha))
        above = net.graph.call("aten.clamp.default", up, -self.limit, self.limit, out=up.sizes)
        more = net.graph.call("aten.add.Scalar", above, 1.0, 1.0, out=up.sizes)
        return net.multiply(net.multiply(bounded, sigmoid), more)


def decoder(config: Config) -> Decoder:
    full = config.attention(has_sinks=True)
    windowed = replace(full, window=config.get("sliding_window", 128))
    gate = BoundedGate(float(config.get("swiglu_alpha", 1.702)), float(config.get("swiglu_limit", 7.0)))
    return stack(config, config.alternating(windowed, full, every=2), replace(experts_of(config), gate=gate))


def _from_gguf(config: Config) -> Config:
    """Files do not state how YaRN's columns are rounded."""
    return config.changed(rope_parameters={"truncate": False, **config["rope_parameters"]})


def _gate_and_up(_: Config, tensor: StoredTensor) -> dict[str, StoredTensor]:
    """[experts, columns, rows], rows of gate and up in turn."""
    return {
        f"{_FEED}.experts.w1.weight": tensor.flattened(lambda matrix: matrix.T[::2]),
        f"{_FEED}.experts.w3.weight": tensor.flattened(lambda matrix: matrix.T[1::2]),
    }


def _gate_and_up_rows(_: Config, tensor: StoredTensor) -> dict[str, StoredTensor]:
    """The same as [experts, rows, columns]."""
    return {
        f"{_FEED}.experts.w1.weight": tensor.flattened(lambda matrix: matrix[::2]),
        f"{_FEED}.experts.w3.weight": tensor.flattened(lambda matrix: matrix[1::2]),
    }


def _biases(_: Config, tensor: StoredTensor) -> dict[str, StoredTensor]:
    return {
        f"{_FEED}.experts.w1.bias": tensor.rearranged(lambda biases: biases[:, ::2]),
        f"{_FEED}.experts.w3.bias": tensor.rearranged(lambda biases: biases[:, 1::2]),
    }


_FEED = "layers.{}.feed_forward"
NAMES: Names = {
    **HUGGING_FACE,
    "model.layers.{}.self_attn.sinks": "layers.{}.attention.sinks.weight",
    "model.layers.{}.mlp.router": f"{_FEED}.router",
    "model.layers.{}.mlp.experts.gate_up_proj": _gate_and_up,
    "model.layers.{}.mlp.experts.gate_up_proj_blocks": _gate_and_up_rows,  # in MXFP4
    "model.layers.{}.mlp.experts.gate_up_proj_bias": _biases,
    "model.layers.{}.mlp.experts.down_proj": flattened(f"{_FEED}.experts.w2.weight", lambda down: down.T),
    "model.layers.{}.mlp.experts.down_proj_blocks": flattened(f"{_FEED}.experts.w2.weight"),
    "model.layers.{}.mlp.experts.down_proj_bias": f"{_FEED}.experts.w2.bias",
}
GGUF_NAMES: Names = {
    **GGUF,
    **GGUF_EXPERTS,
    "blk.{}.attn_sinks": "layers.{}.attention.sinks",
    "blk.{}.post_attention_norm": "layers.{}.ffn_norm",
}
FAMILIES = {"gpt_oss": Family(decoder, NAMES, GGUF_NAMES, architecture="gpt-oss", from_gguf=_from_gguf)}
