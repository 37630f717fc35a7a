"""Writing keys and values to their rows in KV caches, of any type.

A cache is [slots, capacity, heads, width]. It has a row for each position or, if it is a ring, for the last
positions only: position p is in row p % capacity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pteron.families.attention.int8 import BLOCK, is_int8
from pteron.families.layout.copy import copy_strided
from pteron.ops import AnyInt, Dispatch, Operand
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


@dataclass(frozen=True, slots=True)
class Positions:
    """Where rows go: to the positions of a slot from `start` on, the same in each slot, or each row to its
    (position, slot) in `places`."""

    start: AnyInt = 0
    places: Operand | None = None
    is_ring: bool = False

    def write(
        self, key: Operand, keys: Operand, value: Operand | None = None, values: Operand | None = None
    ) -> Iterator[Dispatch]:
        """Write keys and, if there are any, values: rows of heads, to caches of these heads."""
        if is_int8(keys):
            yield self._write_int8(key, keys)
        elif self.places is None and not self.is_ring:
            offset = self.start * keys.strides[1]
            yield copy_strided(key, keys, key.shape, key.strides, keys.strides, out_offset=offset)
        elif value is not None and value.shape == key.shape:
            yield self._write_floats(key, keys, value, values)
            return
        else:
            yield self._write_floats(key, keys)
        if value is not None and values is not None:
            yield from self.write(value, values)

    def _write_floats(
        self, key: Operand, keys: Operand, value: Operand | None = None, values: Operand | None = None
    ) -> Dispatch:
        row = key.shape[-2] * key.shape[-1]
        return Dispatch(
            kernel("write_rows"),
            k=key,
            v=value,
            k_out=keys,
            v_out=values,
            row=row,
            count=key.numel,
            threads=key.numel,
            **self._parameters(key.numel // row, keys),
        )

    def _write_int8(self, x: Operand, cache: Operand) -> Dispatch:
        heads, width = x.shape[-2:]
        blocks = -(-width // BLOCK)
        count = x.numel // width * blocks
        return Dispatch(
            kernel("write_int8"),
            x=x,
            out=cache,
            blocks=blocks,
            heads=heads,
            width=width,
            count=count,
            threads=count,
            **self._parameters(x.numel // (heads * width), cache),
        )

    def _parameters(self, rows: AnyInt, cache: Operand) -> dict[str, Any]:
        slots, capacity, *_ = cache.shape
        steps = rows // slots if self.places is None else rows
        return {
            "IS_RING": self.is_ring,
            "places": self.places,
            "start": self.start,
            "steps": steps,
            "slots": slots,
            "capacity": capacity,
        }
