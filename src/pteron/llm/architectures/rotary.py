"""Rotary position embeddings of a configuration: frequencies, scaled as the model was trained.

Frequencies and angles are rounded to float32 at the same places as in Hugging Face's models, whose weights
were trained with these roundings.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pteron.errors import FormatError, UnsupportedError
from pteron.llm.build.graph import POSITIONS, LiveInt, Tensor
from pteron.llm.build.network import Network

Config: TypeAlias = dict[str, Any]
Frequencies: TypeAlias = npt.NDArray[np.float32]
_DIMS_MAX = 1 << 16


@dataclass(frozen=True)
class Rotary:
    """Rotates the first 2 · len(frequencies) columns of each head by position · frequency.

    A pair is a column of the first half with the one of the second half; with `interleaved`, two neighbours.
    """

    frequencies: tuple[float, ...]
    theta: float = 10000.0  # that frequencies were computed from, before they were scaled
    magnitude: float = 1.0  # multiplies sines and cosines (YaRN, LongRoPE)
    interleaved: bool = False

    def __call__(self, net: Network, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        if self.interleaved and 2 * len(self.frequencies) != queries.sizes[-1]:
            raise UnsupportedError("interleaved rotary embeddings of a part of each head")
        out = [(net.dtype, queries.sizes), (net.dtype, keys.sizes)]
        tables = net.once(self, lambda: self._tables(net))
        if self.interleaved:
            rotated = net.graph.call_many("et_vk.apply_rotary_emb.default", queries, keys, *tables, out=out)
        else:
            name, arguments = "et_vk.apply_rotary_emb_hf.default", (queries, keys, *tables, net.rotary_start)
            rotated = net.graph.call_many(name, *arguments, out=out)
        return rotated[0], rotated[1]

    def _tables(self, net: Network) -> tuple[Tensor, Tensor]:
        """Cosines and sines: of all positions, or of a call's tokens if the operator takes these."""
        start = net.rotary_start
        made = [net.prepacked(net.computed(values)) for values in self.angles(net.context)]
        if not self.interleaved:
            return made[0], made[1]
        end = net.graph.live("add", start, net.tokens, section=POSITIONS)
        cosines, sines = (self._rows(net, table, start, end) for table in made)
        return cosines, sines

    def _rows(self, net: Network, table: Tensor, start: LiveInt, end: LiveInt) -> Tensor:
        sizes = (net.tokens, table.sizes[1])
        name = "aten.slice_copy.Tensor"
        return net.graph.call(name, table, 0, start, end, 1, out=sizes, section=POSITIONS)

    def angles(self, positions: int) -> tuple[Frequencies, Frequencies]:
        """Cosines and sines [positions, columns]."""
        frequencies = np.array(self.frequencies, np.float32)
        angles = np.outer(np.arange(positions, dtype=np.float32), frequencies)
        if not self.interleaved:
            angles = np.concatenate([angles, angles], 1)
        exact = angles.astype(np.float64)
        return (
            (np.cos(exact) * self.magnitude).astype(np.float32),
            (np.sin(exact) * self.magnitude).astype(np.float32),
        )


def rotary_of(config: Config, head_dim: int) -> Rotary:
    """The rotary embedding of a configuration, in Hugging Face's older form (rope_theta, rope_scaling) or its
    newer one (rope_parameters)."""
    rope: Config = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0)
    partial = float(rope.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0)
    dims = int(head_dim * partial)
    if not 0 < dims <= _DIMS_MAX or dims % 2:
        raise FormatError(f"{dims} rotary dimensions per head; must be even, and 2 to {_DIMS_MAX}")
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind not in SCALINGS:
        known = ", ".join(name for name in SCALINGS if name != "default")
        raise UnsupportedError(f"rotary embedding scaled by {kind!r}; known are {known}")
    exponents = np.arange(0, dims, 2).astype(np.float32) / np.float32(dims)
    frequencies = (np.float32(1) / np.float32(theta) ** exponents).astype(np.float32)
    with np.errstate(all="ignore"):
        scaled = SCALINGS[kind](frequencies, rope)
    if scaled.shape != frequencies.shape or not np.all(np.isfinite(scaled) & (scaled > 0)):
        raise FormatError(f"the rotary embedding's parameters are invalid: {rope}")
    return Rotary(tuple(map(float, scaled)), theta, interleaved=bool(config.get("rope_interleaved")))


def _linear(frequencies: Frequencies, rope: Config) -> Frequencies:
    return (frequencies / np.float32(rope["factor"])).astype(np.float32)


def _llama3(frequencies: Frequencies, rope: Config) -> Frequencies:
    """Frequencies with many periods in the original context are kept, those with few are divided by the
    factor, with a linear transition between."""
    factor = float(rope["factor"])
    slow, fast = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
    turns = float(rope["original_max_position_embeddings"]) * frequencies.astype(np.float64) / (2 * math.pi)
    kept = np.clip((turns - slow) / (fast - slow), 0, 1)
    return (frequencies * (kept + (1 - kept) / factor)).astype(np.float32)


def _factors(frequencies: Frequencies, rope: Config) -> Frequencies:
    """A factor for each frequency, as GGUF files store them."""
    return (frequencies / np.array(rope["factors"], np.float32)).astype(np.float32)


# How a kind of scaling changes frequencies.
SCALINGS: dict[str, Callable[[Frequencies, Config], Frequencies]] = {
    "default": lambda frequencies, _: frequencies,
    "linear": _linear,
    "llama3": _llama3,
    "factors": _factors,
}
