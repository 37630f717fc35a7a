"""The epilogue of a product with 4-bit or 8-bit weights: what a kernel does with its sums. It adds bias and
residual and writes the outputs (lib/q4_result.wgsl), or rotates
queries and keys and writes keys and values to the caches (lib/q4_rope.wgsl)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pteron.families.rope.rotate import Angles
from pteron.ops import AnyInt, Operand, Weight
from pteron.ops.operand import joined


@dataclass(frozen=True, slots=True)
class Epilogue:
    """One to three outputs, which share the product's columns, and what is added to them."""

    outputs: tuple[Operand, ...]
    bias: Operand | Weight | None = None
    residual: Operand | None = None  # of the shape of the only output

    @property
    def count(self) -> AnyInt:
        """Elements of all outputs."""
        return sum(out.numel for out in self.outputs)

    @property
    def are_quads(self) -> bool:
        """Whether all outputs are multiples of four wide."""
        return all(out.shape[-1] % 4 == 0 for out in self.outputs)

    @property
    def arguments(self) -> dict[str, Any]:
        """Of a launch that finishes sums."""
        outputs = dict(zip(("out", "out_b", "out_c"), self.outputs, strict=False))
        _, *others = (out.shape[-1] for out in self.outputs)
        widths = {"OTHERS": sum(others), "WIDTH_B": others[0]} if others else {}
        return {**outputs, **widths, "bias": self.bias, "residual": self.residual}


@dataclass(frozen=True, slots=True)
class RopeEpilogue:
    """Rotated queries, and the caches that rotated keys and values are written to from step `start_pos` on.

    Queries are [batch, steps, heads, width], caches [batch, capacity, key heads, width], widths even.
    """

    angles: Angles
    queries: Operand
    key_cache: Operand
    value_cache: Operand
    start_pos: AnyInt
    ring: int = 0  # rows of caches that have those of the last steps only; 0: they have all
    bias: Operand | Weight | None = None

    @property
    def count(self) -> AnyInt:
        """Elements of queries, keys and values."""
        batch, steps, *_ = self.queries.shape
        return self.queries.numel + 2 * batch * steps * self._key_columns

    @property
    def arguments(self) -> dict[str, Any]:
        """Of a launch that finishes sums."""
        tables = self._tables
        joined_tables = {} if tables is None else {"ARE_JOINED": True, "SINES": self.angles.cosines.numel}
        return {
            **joined_tables,
            "HALVED": self.angles.halved,
            "HEAD_WIDTH": self.queries.shape[3],
            "ROTARY": self.angles.rotary,
            "QUERIES": self.queries.shape[2] * self.queries.shape[3],
            "KEYS": self._key_columns,
            "RING": self.ring,
            "q_out": self.queries,
            "k_out": self.key_cache,
            "v_out": self.value_cache,
            "cosines": self.angles.cosines if tables is None else tables,
            "sines": self.angles.sines if tables is None else None,
            "bias": self.bias,
            "steps": self.queries.shape[1],
            "rotary": self.angles.rotary,
            "angle_columns": self.angles.columns,
            "start": self.angles.start,
            "cache_start": self.start_pos,
            "out_stride": self.key_cache.strides[0],
            "angle_strides": self.angles.strides,
        }

    @property
    def buffers(self) -> int:
        """How many buffers it binds."""
        return 4 + (self.angles.sines is not None and self._tables is None) + (self.bias is not None)

    @property
    def _key_columns(self) -> AnyInt:
        """Columns of keys, and of values."""
        return self.key_cache.shape[2] * self.key_cache.shape[3]

    @property
    def _tables(self) -> Weight | None:
        """Both tables in one buffer if they are constants: one binding less."""
        if self.angles.sines is None:
            return None
        tables = [table.buffer for table in (self.angles.cosines, self.angles.sines)]
        weights = [table for table in tables if isinstance(table, Weight)]
        return joined(weights) if len(weights) == 2 and weights[0].storage is weights[1].storage else None
