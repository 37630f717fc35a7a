"""The operands of an attention call, their sizes, and what kernels take of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pteron.dtypes import DType
from pteron.families.attention.int8 import head_width, is_int8
from pteron.families.attention.options import PLAIN, Options
from pteron.ops import AnyInt, LiveShape, Operand, Scratch, bucket, require
from pteron.ops.shapes import broadcast_strides
from pteron.ops.strided import Strided, bound_of, source_of

BUCKET = 4096  # keys: shorter contexts share one grid


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """One attention call and its operands; `heads_first` gives the order of their dims."""

    q: Operand | Strided
    k: Operand | Strided
    v: Operand | Strided
    out: Operand | Strided
    context: AnyInt
    mask: Operand | None = None
    options: Options = PLAIN
    start: AnyInt = 0
    causal: bool = False
    heads_first: bool = False  # [batch, heads, steps, width] rather than [batch, steps, heads, width]
    places: Operand | None = None  # of batched rows: position and slot of each (batched_rows/attention.py)
    value_width: int | None = None  # values are the first columns of `v`; None: all

    # What the kernels take --------------------------------------------------------------------------

    def _queries(self) -> dict[str, Any]:
        """For kernels that walk over keys: which keys queries see, and where these are in caches."""
        return {
            **self._contexts(),
            "CAUSAL": self.causal,
            "WINDOW": self.options.window,
            "RING": self.options.ring,
            "IS_INT8": is_int8(self.k),
            "steps": self._steps,
            "context": self.context,
            "start": self.start,
        }

    def _contexts(self) -> dict[str, Any]:
        """The cache of each batch and its number of keys, where rows have places."""
        return {"places": self.places, "CACHES": None if self.places is None else self.k.shape[0]}

    def _scored(self) -> dict[str, Any]:
        """For kernels that compute scores: queries, keys, and what changes the scores."""
        softcap = self.options.softcap
        return {
            "WIDTH": self._width,
            "IS_CAPPED": softcap is not None,
            "CAP": None if softcap is None else float(softcap),
            "q": bound_of(self.q),
            "k": bound_of(self.k),
            "scale": self._scale,
            "q_strides": self._sizes(self.q.strides),
            "k_strides": self._sizes(self.k.strides),
            **self._masked(),
        }

    def _masked(self) -> dict[str, Any]:
        """What is added to scores."""
        slopes = self.options.slopes
        return {
            "IS_BOOL": self.mask is not None and self.mask.dtype is DType.BOOL,
            "mask": self.mask if slopes is None else None,
            "slopes": slopes,
            "mask_strides": self._mask_strides(),
        }

    def _valued(self) -> dict[str, Any]:
        """For kernels that take values."""
        return {
            "VALUE_WIDTH": self._value_width,
            "v": bound_of(self.v),
            "v_strides": self._sizes(self.v.strides),
        }

    def _result(self) -> dict[str, Any]:
        """For kernels that divide by the sum of the softmax."""
        return {
            "IS_SAFE": self.options.is_safe,
            "sinks": self.options.sinks,
            "out": bound_of(self.out),
            "out_strides": self._sizes(self.out.strides),
        }

    def _stored(self, parts: Scratch | None) -> dict[str, Any]:
        """For kernels that may leave parts, which another one merges and divides."""
        return {**self._result(), "parts": parts, **({"out": None, "sinks": None} if parts else {})}

    def _mask_strides(self) -> LiveShape:
        if self.mask is None:
            return (0, 0, 0, 0)
        return broadcast_strides(self.mask.shape, self._mask_shape())

    # Sizes ------------------------------------------------------------------------------------------

    def _sizes(self, of: LiveShape) -> tuple[AnyInt, AnyInt, AnyInt]:
        """(batch, step, head) of a shape or of strides."""
        return (of[0], of[2], of[1]) if self.heads_first else (of[0], of[1], of[2])

    def _in_steps(self) -> list[Strided]:
        """Queries, keys, values and result as [batch, steps, heads, width]."""
        given = (self.q, self.k, self.v, self.out)
        seen = [Strided.of(each) if isinstance(each, Operand) else each for each in given]
        return [each.permuted((0, 2, 1, 3)) for each in seen] if self.heads_first else seen

    @property
    def _scale(self) -> float:
        scale = self.options.scale
        return scale if scale is not None else self._width**-0.5

    @property
    def _width(self) -> int:
        return int(self.q.shape[3])  # a constant of all kernels

    @property
    def _value_width(self) -> int:
        return self.value_width or int(head_width(self.v))

    @property
    def _steps(self) -> AnyInt:
        return self._sizes(self.q.shape)[1]

    @property
    def _heads(self) -> AnyInt:
        return self._sizes(self.q.shape)[2]

    @property
    def _key_heads(self) -> AnyInt:
        return self._sizes(self.k.shape)[2]

    @property
    def _heads_per_key(self) -> AnyInt:
        return self._heads // self._key_heads

    @property
    def _keys(self) -> AnyInt:
        """The most keys that the plan is made for."""
        if self.places is not None:
            return int(self._reach)
        return min(bucket(self._reach, BUCKET), self._sizes(self.k.shape)[1])

    @property
    def _reach(self) -> AnyInt:
        """Keys that some query of the call sees."""
        return self.options.reach(self.context, self._steps)

    def _mask_shape(self) -> LiveShape:
        return (self.q.shape[0], self._heads, self._steps, self.context)

    @property
    def _count(self) -> AnyInt:
        """Queries over all batches and heads."""
        return self.q.numel // self._width

    def _check(self) -> None:
        q, k, v = self.q, self.k, self.v
        require(k.shape[:3] == v.shape[:3], "keys and values must have one shape", k, v)
        require(q.shape[0] == k.shape[0], "queries and keys must have one batch size", q, k)
        require(q.shape[3] == head_width(k), "queries, keys and values must have one width", q, k, v)
        same = self._value_width == self.out.shape[3] <= head_width(v)
        require(same, "keys and values must have one shape", k, v)
        require(q.shape[3] > 0, "heads must be at least one element wide", q, k, v)
        grouped = self._key_heads > 0 and self._heads % self._key_heads == 0
        require(grouped, "query heads must be a multiple of key heads", q, k)
        self.options.check(self._heads, source_of(q))
        if self.mask is not None:
            kind = self.mask.dtype
            require(kind.is_float or kind is DType.BOOL, "mask must hold floats or booleans", self.mask)
            wide, sizes = self._mask_shape(), (1,) * (4 - self.mask.rank) + self.mask.shape
            fits = len(sizes) == 4 and all(map(lambda size, to: size in (1, to), sizes, wide))
            require(fits, f"mask must broadcast to [batch, heads, steps, keys] = {list(wide)}", self.mask)
