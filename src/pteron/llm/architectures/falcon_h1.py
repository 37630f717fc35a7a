"""Falcon-H1: each layer adds attention and a mixer of Mamba-2, both of the same input. Bamba has either.

Falcon-H1's multipliers go into the weights of their layers, as in GGUF files. Those of embeddings and logits
do not, since both may use one table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pteron.format.stored_tensor import Array, StoredTensor
from pteron.llm.architectures.config import Config
from pteron.llm.architectures.family import Family, stack
from pteron.llm.architectures.mamba2 import MIXER_GGUF, in_rows, mixer, mixer_names, sizes_of
from pteron.llm.architectures.names import GGUF, HUGGING_FACE, Names, Rule, split
from pteron.llm.architectures.parts import Decoder, Part
from pteron.llm.network.graph import Tensor
from pteron.llm.network.network import Network


@dataclass(frozen=True)
class Sum:
    """Two parts with the same input, whose weights have different names."""

    first: Part
    second: Part

    def __call__(self, net: Network, x: Tensor, place: str) -> Tensor:
        return net.add(self.first(net, x, place), self.second(net, x, place))


def falcon_h1(config: Config) -> Decoder:
    norms_first = bool(config.get("mamba_norm_before_gate", True))
    both = Sum(mixer(config, norms_first), config.attention())
    return replace(
        stack(config, both),
        embedding_scale=float(config.get("embedding_multiplier", 1)),
        logit_scale=float(config.get("lm_head_multiplier", 1)),
    )


def bamba(config: Config) -> Decoder:
    attention, mamba, full = config.attention(), mixer(config), config.get("attn_layer_indices") or ()
    return stack(config, [attention if layer in full else mamba for layer in config.layers])


Factor = Callable[[Config], float | Array]


def _one(_: Config) -> float:
    return 1.0


def _key(name: str, index: int | None = None) -> Factor:
    """A multiplier of the configuration, or one of several."""

    def factor(config: Config) -> float:
        found = config.get(name)
        return 1.0 if found is None else float(found if index is None else found[index])

    return factor


def _in_factors(config: Config) -> Array:
    """Of each row of a mixer's inputs: the gate, x, B, C and time steps."""
    heads, width, columns, groups = sizes_of(config)
    counts = (heads * width, heads * width, groups * columns, groups * columns, heads)
    return np.repeat(np.array(config.get("ssm_multipliers") or [1.0] * 5, np.float32), counts)


def _scaled(rule: str | Rule, result: Factor = _one, given: Factor = _one) -> Rule:
    """A matrix whose input is multiplied by `given` and whose result, with its bias, by `result`."""

    def scale(config: Config, tensor: StoredTensor) -> dict[str, StoredTensor]:
        is_matrix = len(tensor.shape) > 1
        factors = np.broadcast_to(result(config) * (given(config) if is_matrix else 1), tensor.rows)
        scaled = tensor.scaled_rows(np.asarray(factors, np.float32))
        return {rule: scaled} if isinstance(rule, str) else dict(rule(config, scaled))

    return scale


_LAYER = "model.layers.{}"
BAMBA_NAMES: Names = {
    **HUGGING_FACE,
    "model.final_layernorm": "norm",
    f"{_LAYER}.pre_ff_layernorm": "layers.{}.ffn_norm",
    f"{_LAYER}.feed_forward.gate_proj": "layers.{}.feed_forward.w1",
    f"{_LAYER}.feed_forward.down_proj": "layers.{}.feed_forward.w2",
    f"{_LAYER}.feed_forward.up_proj": "layers.{}.feed_forward.w3",
    **mixer_names(f"{_LAYER}.mamba"),
}
_ATTENTION, _INPUT = "layers.{}.attention", _key("attention_in_multiplier")
NAMES: Names = {
    **BAMBA_NAMES,
    f"{_LAYER}.self_attn.q_proj": _scaled(f"{_ATTENTION}.wq", given=_INPUT),
    f"{_LAYER}.self_attn.k_proj": _scaled(f"{_ATTENTION}.wk", _key("key_multiplier"), _INPUT),
    f"{_LAYER}.self_attn.v_proj": _scaled(f"{_ATTENTION}.wv", given=_INPUT),
    f"{_LAYER}.self_attn.o_proj": _scaled(f"{_ATTENTION}.wo", _key("attention_out_multiplier")),
    f"{_LAYER}.feed_forward.gate_proj": _scaled("layers.{}.feed_forward.w1", _key("mlp_multipliers", 0)),
    f"{_LAYER}.feed_forward.down_proj": _scaled("layers.{}.feed_forward.w2", _key("mlp_multipliers", 1)),
    f"{_LAYER}.mamba.in_proj": _scaled(split(in_rows), _in_factors, _key("ssm_in_multiplier")),
    f"{_LAYER}.mamba.out_proj": _scaled(f"{_ATTENTION}.wy", _key("ssm_out_multiplier")),
}
# llama.cpp's files have this norm without `.weight`.
_FFN_NORM: Names = {
    "blk.{}.ffn_norm.weight": "layers.{}.ffn_norm",
    "blk.{}.ffn_norm": "layers.{}.ffn_norm.weight",
}
FAMILIES = {
    "bamba": Family(bamba, BAMBA_NAMES),
    "falcon_h1": Family(
        falcon_h1, NAMES, {**_FFN_NORM, **GGUF, **MIXER_GGUF, **_FFN_NORM}, architecture="falcon-h1"
    ),
}
