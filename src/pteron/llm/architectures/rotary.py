"""Rotary position embeddings of a configuration: frequencies, scaled as the model was trained.

Frequencies and angles are rounded to float32 at the same places as in Hugging Face's models, whose weights
were trained with these roundings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pteron.errors import FormatError, UnsupportedError
from pteron.llm.network.graph import POSITIONS, Tensor
from pteron.llm.network.network import Network

Settings: TypeAlias = Mapping[str, Any]  # of a configuration, or of its rotary embedding
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
    length: int | None = None  # tokens of the longest context that these frequencies are for
    beyond: Rotary | None = None  # for longer ones

    def __call__(self, net: Network, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        if self.length is not None and net.context > self.length:
            if self.beyond is None:
                raise UnsupportedError(
                    f"a context of {net.context} tokens: the rotary embedding changes with the length beyond "
                    f"{self.length} tokens; max_context_len must be at most {self.length}"
                )
            return self.beyond(net, queries, keys)
        if self.length is not None:
            net.limit_context(self.length, is_of_program=self.beyond is not None)
        out = [(net.dtype, queries.sizes), (net.dtype, keys.sizes)]
        tables = net.once((self, queries.shape[-1]), lambda: self._tables(net, queries.shape[-1]))
        if self.interleaved:
            rotated = net.graph.call_many("et_vk.apply_rotary_emb.default", queries, keys, *tables, out=out)
        else:
            name, arguments = "et_vk.apply_rotary_emb_hf.default", (queries, keys, *tables, net.rotary_start)
            rotated = net.graph.call_many(name, *arguments, out=out)
        return rotated[0], rotated[1]

    def _tables(self, net: Network, width: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines: of all positions, or of a call's tokens if the operator takes these."""
        cosines, sines = self.angles(net.longest)
        if self.interleaved:  # the operator rotates whole heads: by 0 where there is no frequency
            missing = ((0, 0), (0, width // 2 - len(self.frequencies)))
            cosines, sines = np.pad(cosines, missing, constant_values=1), np.pad(sines, missing)
        made = [net.prepacked(net.computed(values)) for values in (cosines, sines)]
        if self.interleaved:
            made = [rows_at_positions(net, table) for table in made]
        return made[0], made[1]

    def angles(self, positions: int) -> tuple[Frequencies, Frequencies]:
        """Cosines and sines [positions, columns]."""
        frequencies = np.array(self.frequencies, np.float32)
        angles = np.outer(np.arange(positions, dtype=np.float32), frequencies).astype(np.float64)
        cosines = (np.cos(angles) * self.magnitude).astype(np.float32)
        sines = (np.sin(angles) * self.magnitude).astype(np.float32)
        copies = 1 if self.interleaved else 2  # both columns of a pair
        return np.tile(cosines, copies), np.tile(sines, copies)


def rows_at_positions(net: Network, table: Tensor) -> Tensor:
    """The rows of a table for the tokens of a call: [tokens, columns]."""
    end = net.once("end", lambda: net.graph.live("add", net.rotary_start, net.tokens, section=POSITIONS))
    arguments = (table, 0, net.rotary_start, end, 1)
    sizes = (net.tokens, table.sizes[1])
    return net.graph.call("aten.slice_copy.Tensor", *arguments, out=sizes, section=POSITIONS)


def rotary_of(config: Settings, head_dim: int, *, interleaved: bool = False) -> Rotary:
    """The rotary embedding of a configuration, in Hugging Face's older form (rope_theta, rope_scaling) or its
    newer one (rope_parameters)."""
    rope: Settings = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0)
    partial = float(rope.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0)
    dims = int(head_dim * partial)
    if not 0 < dims <= _DIMS_MAX or dims % 2:
        raise FormatError(f"{dims} rotary dimensions per head; must be even, and 2 to {_DIMS_MAX}")
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if "long_factor" in rope and kind in ("su", "yarn"):  # names of LongRoPE in older files
        kind = "longrope"
    if kind not in SCALINGS:
        known = ", ".join(name for name in SCALINGS if name != "default")
        raise UnsupportedError(f"rotary embedding scaled by {kind!r}; known are {known}")
    trained = config.get("max_position_embeddings")
    original = config.get("original_max_position_embeddings") or trained
    rope = {"original_max_position_embeddings": original, **rope, "max_position_embeddings": trained}
    with np.errstate(all="ignore"):
        interleaved = interleaved or bool(config.get("rope_interleaved"))
        rotary = Rotary(_tuple(_frequencies(theta, dims)), theta, interleaved=interleaved)
        rotary = SCALINGS[kind](rotary, rope)
    for each in (rotary, rotary.beyond or rotary):
        scaled = np.array([*each.frequencies, each.magnitude])
        if scaled.shape != (dims // 2 + 1,) or not np.all(np.isfinite(scaled) & (scaled > 0)):
            raise FormatError(f"the rotary embedding's parameters are invalid: {rope}")
    return rotary


def rotary_of_kind(config: Settings, head_dim: int, kind: str) -> Rotary:
    """The rotary embedding of layers with (`sliding_attention`) or without (`full_attention`) a window. In
    the older form, only layers without a window have scaled embeddings, and `rope_local_base_freq` is the
    theta of the others."""
    rope = config.get("rope_parameters") or {}
    if kind == "sliding_attention" and config.get("rope_local_base_freq"):
        config = {**config, "rope_theta": config["rope_local_base_freq"]}
    if rope.get(kind):
        return rotary_of({**config, "rope_parameters": rope[kind]}, head_dim)
    if kind == "full_attention":
        return rotary_of(config, head_dim)
    theta = config.get("rope_local_base_freq") or rope.get("rope_theta") or config.get("rope_theta")
    partial = rope.get("partial_rotary_factor")
    plain = {"rope_theta": theta, "partial_rotary_factor": partial}
    return rotary_of({**config, "rope_parameters": plain}, head_dim)


def _frequencies(theta: float, dims: int) -> Frequencies:
    exponents = np.arange(0, dims, 2).astype(np.float32) / np.float32(dims)
    return (np.float32(1) / np.float32(theta) ** exponents).astype(np.float32)


def _tuple(frequencies: npt.NDArray[Any]) -> tuple[float, ...]:
    return tuple(map(float, frequencies.astype(np.float32)))


def _divided(rotary: Rotary, factors: npt.ArrayLike) -> Rotary:
    divisors = np.array(factors, np.float32)
    return replace(rotary, frequencies=_tuple(np.array(rotary.frequencies, np.float32) / divisors))


def _llama3(rotary: Rotary, rope: Settings) -> Rotary:
    """Frequencies with many periods in the original context are kept, those with few are divided by the
    factor, with a linear transition between."""
    factor = float(rope["factor"])
    slow, fast = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
    frequencies = np.array(rotary.frequencies)
    turns = float(rope["original_max_position_embeddings"]) * frequencies / (2 * math.pi)
    kept = np.clip((turns - slow) / (fast - slow), 0, 1)
    return replace(rotary, frequencies=_tuple(frequencies * (kept + (1 - kept) / factor)))


def _yarn(rotary: Rotary, rope: Settings) -> Rotary:
    """As llama3, with a transition between two columns, and larger sines and cosines."""
    original, dims = float(rope["original_max_position_embeddings"]), 2 * len(rotary.frequencies)
    factor = float(rope["factor"] or rope["max_position_embeddings"] / original)

    def column(turns: float) -> float:
        return dims * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(rotary.theta))

    first, last = column(float(rope.get("beta_fast") or 32)), column(float(rope.get("beta_slow") or 1))
    if rope.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dims - 1)
    steps = np.arange(dims // 2, dtype=np.float32)
    divided = np.clip((steps - first) / (last - first or 0.001), 0, 1)
    frequencies = np.array(rotary.frequencies)
    scaled = frequencies / factor * divided + frequencies * (1 - divided)
    return replace(rotary, frequencies=_tuple(scaled), magnitude=_yarn_magnitude(rope, factor))


def _yarn_magnitude(rope: Settings, factor: float) -> float:
    def magnitude(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1 if factor > 1 else 1.0

    if rope.get("attention_factor") is not None:
        return float(rope["attention_factor"])
    if rope.get("mscale") and rope.get("mscale_all_dim"):
        return magnitude(rope["mscale"]) / magnitude(rope["mscale_all_dim"])
    return magnitude(1.0)


def _longrope(rotary: Rotary, rope: Settings) -> Rotary:
    """A factor for each frequency: short ones for contexts up to the original length, long ones beyond."""
    original = int(rope["original_max_position_embeddings"])
    factor = float(rope.get("factor") or rope["max_position_embeddings"] / original)
    magnitude = rope.get("attention_factor")
    if magnitude is None:
        magnitude = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    rotary = replace(rotary, magnitude=float(magnitude))
    beyond = _divided(rotary, rope["long_factor"])
    return replace(_divided(rotary, rope["short_factor"]), length=original, beyond=beyond)


def _dynamic(rotary: Rotary, rope: Settings) -> Rotary:
    """Plain frequencies up to the trained length. With `alpha` (HunYuan), those of a larger theta."""
    if not rope.get("alpha"):
        return replace(rotary, length=int(rope["max_position_embeddings"]))
    dims = 2 * len(rotary.frequencies)
    theta = rotary.theta * float(rope["alpha"]) ** (dims / (dims - 2))
    return replace(rotary, frequencies=_tuple(_frequencies(theta, dims)), theta=theta)


# How a kind of scaling changes a rotary embedding.
SCALINGS: dict[str, Callable[[Rotary, Settings], Rotary]] = {
    "default": lambda rotary, _: rotary,
    "linear": lambda rotary, rope: _divided(rotary, rope["factor"]),
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "dynamic": _dynamic,
    "factors": lambda rotary, rope: _divided(rotary, rope["factors"]),  # of GGUF files, for each frequency
}
