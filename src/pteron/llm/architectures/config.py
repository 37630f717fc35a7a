"""A model's configuration, in the terms of Hugging Face's config.json, and the parts that it describes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pteron.errors import UnsupportedError
from pteron.llm.architectures.parts import Attention, GatedMlp, LayerNorm, RmsNorm
from pteron.llm.architectures.rotary import rotary_of


class Config(dict[str, Any]):
    """The keys as they are stored, under common names. Its properties are what most families make of them."""

    def changed(self, **settings: Any) -> Config:
        return Config(self | settings)

    @property
    def layers(self) -> range:
        return range(int(self["num_hidden_layers"]))

    @property
    def norm(self) -> RmsNorm:
        return RmsNorm(float(self["rms_norm_eps"]))

    @property
    def layer_norm(self) -> LayerNorm:
        return LayerNorm(float(self["layer_norm_eps"]))

    def activation(self, default: str = "silu") -> str:
        name: str = self.get("hidden_act", default)
        return name

    @property
    def mlp(self) -> GatedMlp:
        return GatedMlp(self.activation())

    @property
    def window(self) -> Any:
        """Keys that a query sees in layers with a sliding window."""
        return self.get("sliding_window") or None

    @property
    def head_sizes(self) -> tuple[int, int, int]:
        """Heads of queries, heads of keys and values, and their width."""
        heads = int(self["num_attention_heads"])
        head_dim = int(self.get("head_dim") or self["hidden_size"] // heads)
        return heads, int(self.get("num_key_value_heads") or heads), head_dim

    def attention(self, *, interleaved: bool = False, **options: Any) -> Attention:
        """Attention of all layers, rotated unless `rotary` says otherwise. `options` are those of
        `Attention`."""
        heads, kv_heads, head_dim = self.head_sizes
        if "rotary" not in options:
            options["rotary"] = rotary_of(self, head_dim, interleaved=interleaved)
        return Attention(heads, kv_heads, head_dim, **options)

    def is_full(self, is_by_default: Callable[[int], bool]) -> list[bool]:
        """Whether each layer attends to all tokens: as the configuration lists it, or by its number."""
        kinds = self.get("layer_types")
        return [kinds[layer] == "full_attention" if kinds else is_by_default(layer) for layer in self.layers]

    def alternating(self, sliding: Attention, full: Attention, every: int) -> list[Attention]:
        """Full attention in layers that the configuration lists, or in each `every`-th."""
        every = self.get("sliding_window_pattern") or every
        if not self.get("layer_types") and not isinstance(every, int):
            raise UnsupportedError(f"sliding_window_pattern {every!r} without layer_types")
        return [full if each else sliding for each in self.is_full(lambda layer: (layer + 1) % every == 0)]

    def windowed(self, attentions: list[Attention], is_windowed: Callable[[int], bool]) -> list[Attention]:
        """The same with windows, if `use_sliding_window` is on: in layers that are not full."""
        if not self.get("use_sliding_window") or not self.window:
            return attentions
        full = self.is_full(lambda layer: not is_windowed(layer))
        return [
            each if each_full else replace(each, window=int(self.window))
            for each, each_full in zip(attentions, full, strict=True)
        ]
