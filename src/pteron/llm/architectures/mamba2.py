"""Mamba-2: layers of mixers with a state of fixed size, without attention. Hybrid families use the mixer too.

A layer of Nemotron-H is a mixer, attention without positions, or an MLP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pteron.dtypes import DType
from pteron.errors import UnsupportedError
from pteron.llm.architectures.config import Config
from pteron.llm.architectures.family import Family, require_settings
from pteron.llm.architectures.names import GGUF, Names, Rule, split
from pteron.llm.architectures.parts import Decoder, Mlp, Part, activation
from pteron.llm.architectures.recurrent import short_conv, taps
from pteron.llm.network.graph import Tensor
from pteron.llm.network.network import Network


@dataclass(frozen=True)
class Mixer:
    """wy(norm(scan(conv(wx x), wdt x) * silu(wz x))), without the norm if the checkpoint has none. Each group
    of heads is normed on its own."""

    heads: int
    width: int  # of a head
    columns: int  # of a head's state
    groups: int  # of heads that share B and C
    eps: float
    norms_first: bool = False  # before the product with silu(wz x)
    limits: tuple[float, float | None] = (0.0, None)  # of time steps

    def __call__(self, net: Network, x: Tensor, place: str) -> Tensor:
        gate = activation("silu")(net, net.linear(x, f"{place}.wz"))
        xbc = short_conv(net, net.linear(x, f"{place}.wx"), f"{place}.conv", silu=True)
        y = self._scan(net, xbc, net.linear(x, f"{place}.wdt"), place)
        if self.norms_first:
            y = net.multiply(self._normed(net, y, f"{place}.norm"), gate)
        else:
            y = self._normed(net, net.multiply(y, gate), f"{place}.norm")
        return net.linear(y, f"{place}.wy")

    def _scan(self, net: Network, xbc: Tensor, dt: Tensor, place: str) -> Tensor:
        rates = [net.float_constant(f"{place}.{name}") for name in ("a", "d", "dt.bias")]
        state = net.state((1, self.heads, self.width, self.columns), DType.F32)
        return net.graph.call(
            "pteron.ssm_scan.default",
            *(xbc, dt, *rates, self.groups, *self.limits, state, net.start),
            out=(*xbc.sizes[:-1], self.heads * self.width),
        )

    def _normed(self, net: Network, y: Tensor, place: str) -> Tensor:
        if not net.has(f"{place}.weight"):
            return y
        if self.groups == 1:
            return net.rms_norm(y, place, self.eps)
        parts = net.view(y, *y.sizes[:2], self.groups, y.shape[-1] // self.groups)
        ones = net.computed(np.ones(parts.shape[-1], np.float32))
        eps = float(np.float32(self.eps))
        normed = net.graph.call("et_vk.rms_norm.default", parts, ones, eps, out=parts.sizes)
        return net.multiply(net.view(normed, *y.sizes), net.prepacked(net.float_constant(f"{place}.weight")))


@dataclass(frozen=True)
class SingleBlock:
    """A layer of one part: x + part(norm x)."""

    part: Part
    norm: Part

    def __call__(self, net: Network, x: Tensor, place: str) -> Tensor:
        return net.add(x, self.part(net, self.norm(net, x, f"{place}.attention_norm"), f"{place}.attention"))


# Keys of configurations for one size; those with dots are of GGUF files.
_HEADS = ("mamba_n_heads", "mamba_num_heads", "num_heads", "ssm.time_step_rank")
_INNER = ("mamba_d_ssm", "ssm.inner_size")
_WIDTH = ("mamba_d_head", "mamba_head_dim")
_COLUMNS = ("mamba_d_state", "ssm_state_size", "state_size", "ssm.state_size")
_GROUPS = ("mamba_n_groups", "n_groups", "ssm.group_count")


def _first(config: Mapping[str, Any], keys: tuple[str, ...], default: Any = None) -> Any:
    found = next((config[key] for key in keys if config.get(key) is not None), default)
    if found is None:
        raise KeyError(" or ".join(keys))
    return found


def sizes_of(config: Mapping[str, Any]) -> tuple[int, int, int, int]:
    """Heads, their width, columns of a state, groups."""
    heads, inner, width = (
        int(_first(config, _HEADS)),
        _first(config, _INNER, 0),
        _first(config, _WIDTH, "auto"),
    )
    if not inner and width == "auto":
        inner = int(_first(config, ("mamba_expand", "expand"), 2)) * int(config["hidden_size"])
    width = int(inner) // heads if inner else int(width)
    return heads, width, int(_first(config, _COLUMNS)), int(_first(config, _GROUPS))


def mixer(config: Config, norms_first: bool = False) -> Mixer:
    require_settings(config, hidden_act="silu", mamba_hidden_act="silu")
    if "ssm.group_count" in config:  # llama.cpp norms after the gate in all families
        norms_first = False
    low, high = (_number(limit) for limit in config.get("time_step_limit") or (0.0, np.inf))
    limits = low, None if np.isinf(high) else high
    return Mixer(*sizes_of(config), eps=config.norm.eps, limits=limits, norms_first=norms_first)


def _number(value: Any) -> float:
    """JSON has no infinity: newer configurations write {"__float__": "Infinity"}."""
    return float(value["__float__"] if isinstance(value, dict) else value)


def mamba2(config: Config) -> Decoder:
    return Decoder((SingleBlock(mixer(config), config.norm),) * len(config.layers), config.norm)


def nemotron_h(config: Config) -> Decoder:
    require_settings(config, sliding_window=None)
    parts: dict[str, Part] = {
        **dict.fromkeys(("M", "mamba", "linear_attention", "recurrent"), mixer(config)),
        **dict.fromkeys(("*", "attention", "full_attention"), config.attention(rotary=None)),
        **dict.fromkeys(("-", "mlp"), Mlp(config.get("mlp_hidden_act", "relu2"))),
    }
    kinds = _kinds(config)
    unknown = sorted(set(kinds) - set(parts))
    if unknown:
        raise UnsupportedError(f"layers of kind {', '.join(unknown)}; known are {', '.join(parts)}")
    return Decoder(tuple(SingleBlock(parts[kind], config.norm) for kind in kinds), config.norm)


def _kinds(config: Config) -> list[str]:
    """The kind of each layer."""
    keys = ("layers_block_type", "layer_types", "hybrid_override_pattern")
    return list(_first(config, keys))


def in_rows(config: Config) -> dict[str, int]:
    """The rows of the matrix that makes a mixer's inputs."""
    heads, width, columns, groups = sizes_of(config)
    inner = heads * width
    rows = {"wz": inner, "wx": inner + 2 * groups * columns, "wdt": heads}
    return {f"layers.{{}}.attention.{name}": count for name, count in rows.items()}


def _flat(place: str) -> Rule:
    return lambda _, tensor: {place: tensor.rearranged(np.ravel)}


def mixer_names(prefix: str) -> Names:
    """Of Hugging Face's checkpoints."""
    place = "layers.{}.attention"
    return {
        f"{prefix}.in_proj": split(in_rows),
        f"{prefix}.conv1d": taps(f"{place}.conv"),
        f"{prefix}.A_log": lambda _, tensor: {f"{place}.a": tensor.mapped(lambda array: -np.exp(array))},
        f"{prefix}.D": f"{place}.d",
        f"{prefix}.dt_bias": f"{place}.dt.bias",
        f"{prefix}.norm": f"{place}.norm",
        f"{prefix}.out_proj": f"{place}.wy",
    }


MIXER_GGUF: Names = {
    "blk.{}.ssm_in": split(in_rows),
    "blk.{}.ssm_conv1d": taps("layers.{}.attention.conv"),
    "blk.{}.ssm_a": _flat("layers.{}.attention.a"),
    "blk.{}.ssm_d": _flat("layers.{}.attention.d"),
    "blk.{}.ssm_dt": "layers.{}.attention.dt",
    "blk.{}.ssm_norm": _flat("layers.{}.attention.norm"),
    "blk.{}.ssm_out": "layers.{}.attention.wy",
}
_LAYER = "backbone.layers.{}"
NAMES: Names = {
    "backbone.embedding": "tok_embeddings",
    "backbone.embeddings": "tok_embeddings",
    "backbone.norm_f": "norm",
    "lm_head": "output",
    f"{_LAYER}.norm": "layers.{}.attention_norm",
    **mixer_names(f"{_LAYER}.mixer"),
}
NEMOTRON_NAMES: Names = {
    **NAMES,
    **{f"{_LAYER}.mixer.{kind}_proj": f"layers.{{}}.attention.w{kind}" for kind in "qkvo"},
    f"{_LAYER}.mixer.up_proj": "layers.{}.attention.w1",
    f"{_LAYER}.mixer.down_proj": "layers.{}.attention.w2",
}
NEMOTRON_GGUF: Names = {
    **GGUF,
    **MIXER_GGUF,
    "blk.{}.ffn_up": "layers.{}.attention.w1",
    "blk.{}.ffn_down": "layers.{}.attention.w2",
}
_KEYS = {"rms_norm_eps": "layer_norm_epsilon"}
FAMILIES = {
    "mamba2": Family(mamba2, NAMES, {**GGUF, **MIXER_GGUF}, _KEYS, context=1 << 20),  # it has no positions
    "nemotron_h": Family(nemotron_h, NEMOTRON_NAMES, NEMOTRON_GGUF, _KEYS),
}
