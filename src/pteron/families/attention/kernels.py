"""softmax(scale · q·kᵀ + mask) · v, by one of three kernels chosen from the live shape and the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pteron.dtypes import DType
from pteron.graph import Shape
from pteron.ops import AnyInt, Dispatch, Operand, Scratch, Target, bucket, require
from pteron.ops.rows import shared_rows
from pteron.ops.shapes import broadcast, broadcast_strides
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

LANES = 64  # keys that a workgroup scores at once
BUCKET = 4096  # keys: shorter contexts share one grid
TILE = 32  # queries, and keys, of a tile
STEPS_FEW = 8  # up to here, splitting the context keeps the device busier than tiles of queries do


@dataclass(frozen=True, slots=True)
class Attention:
    """One attention, over tensors that name their batch, step and head dims."""

    q: Operand
    k: Operand
    v: Operand
    out: Operand
    context: AnyInt
    mask: Operand | None = None
    scale: float | None = None
    start: AnyInt = 0
    causal: bool = False
    heads_first: bool = False  # [batch, heads, steps, width] rather than [batch, steps, heads, width]

    def dispatches(self, target: Target) -> Iterator[Dispatch]:
        """The attention by the kernel that suits it."""
        self._check()
        width, queries = self.q.shape[3], self.q.numel // max(self.q.shape[3], 1)
        by_fours = not target.is_cpu and width % 4 == 0
        if by_fours and self._steps > STEPS_FEW and _tile_bytes(width) <= target.workgroup_bytes_max:
            yield Dispatch(
                kernel("attention_tiled", **self._declarations()),
                **self._arguments(),
                out=self.out,
                out_strides=self._sizes(self.out.strides),
                groups=(-(-self._steps // TILE), self._heads, self.q.shape[0]),
            )
        elif by_fours and self._steps <= STEPS_FEW and queries <= target.workgroups_max:
            yield from self._split(target, queries)
        else:
            yield Dispatch(
                kernel("attention_thread", **self._declarations()),
                **self._arguments(),
                out=self.out,
                out_strides=self._sizes(self.out.strides),
                queries=queries,
                heads=self._heads,
                threads=queries,
            )

    def _split(self, target: Target, queries: int) -> Iterator[Dispatch]:
        """The context in splits, each a workgroup. The grid is that of a bucket of contexts, so that a plan
        holds while the context grows: splits past its end have nothing to do, and cost next to nothing."""
        width, capacity = self.q.shape[3], self._sizes(self.k.shape)[1]
        splits = -(-min(bucket(self.context, BUCKET), capacity) // LANES)
        parts = Scratch(queries * splits * (width + 2))
        yield Dispatch(
            kernel("attention_split", **self._declarations(), **shared_rows(target, LANES, 1)),
            **self._arguments(),
            parts=parts,
            splits=splits,
            heads=self._heads,
            groups=(splits, queries, 1),
        )
        yield Dispatch(
            kernel("attention_merge", WIDTH=width),
            parts=parts,
            out=self.out,
            splits=splits,
            split=LANES,
            context=self.context,
            steps=self._steps,
            heads=self._heads,
            out_strides=self._sizes(self.out.strides),
            groups=(queries, 1, 1),
        )

    @property
    def _steps(self) -> int:
        return self._sizes(self.q.shape)[1]

    @property
    def _heads(self) -> int:
        return self._sizes(self.q.shape)[2]

    def _check(self) -> None:
        heads, key_heads = self._heads, self._sizes(self.k.shape)[2]
        fits = self.k.shape == self.v.shape and self.k.shape[3] == self.q.shape[3]
        require(fits, "queries, keys and values must have one width", self.q, self.k, self.v)
        grouped = key_heads > 0 and heads % key_heads == 0
        require(grouped, "query heads must be a multiple of key heads", self.q, self.k)

    def _declarations(self) -> dict[str, Any]:
        declarations: dict[str, Any] = {"WIDTH": self.q.shape[3], "CAUSAL": self.causal}
        if self.mask is None:
            declarations["bias"] = "0.0"
        elif self.mask.dtype is DType.BOOL:
            declarations["bias"] = "select(-3.4028234e38, 0.0, mask[dot(place, params.mask_strides)] != M())"
        return declarations

    def _arguments(self) -> dict[str, Any]:
        """What every kernel but the merge takes."""
        return {
            "q": self.q,
            "k": self.k,
            "v": self.v,
            "mask": self.mask,
            "steps": self._steps,
            "heads_per_key": self._heads // self._sizes(self.k.shape)[2],
            "context": self.context,
            "start": self.start,
            "scale": self.scale if self.scale is not None else self.q.shape[3] ** -0.5,
            "q_strides": self._sizes(self.q.strides),
            "k_strides": self._sizes(self.k.strides),
            "v_strides": self._sizes(self.v.strides),
            "mask_strides": self._mask_strides(),
        }

    def _sizes(self, of: Shape) -> tuple[int, int, int]:
        """(batch, step, head) of a shape or of strides."""
        return (of[0], of[2], of[1]) if self.heads_first else (of[0], of[1], of[2])

    def _mask_strides(self) -> Shape:
        if self.mask is None:
            return (0, 0, 0, 0)
        shape = (self.q.shape[0], self._heads, self._steps, int(self.context))
        fits = broadcast(self.mask.shape, shape) == shape
        require(fits, f"mask must broadcast to {list(shape)}", self.mask)
        return broadcast_strides(self.mask.shape, shape)


def _tile_bytes(width: int) -> int:
    """Workgroup memory of attention_tiled.wgsl: two tiles of rows, and the scores."""
    return 2 * TILE * (width // 4 + 1) * 16 + TILE * (TILE + 1) * 4
