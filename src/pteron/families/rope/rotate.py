"""Rotates queries and keys by their position, and copies values, in one dispatch.

`Rotation.angles` says which elements of a head are a pair and where tables hold its angle; `rotate` makes the
dispatch, whose keys and values go to tensors or to caches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pteron.families.layout.rearrange import slice_bounds
from pteron.ops import AnyInt, Dispatch, Operand, Target, require
from pteron.ops.row_layout import row_groups, row_layout
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


@dataclass(frozen=True, slots=True)
class Angles:
    """Tables of cosines and sines, from row `start` on, and what of a head they rotate."""

    halved: bool  # pairs are (j, j + rotary / 2), each element with its own angle
    cosines: Operand
    sines: Operand | None
    start: AnyInt
    rotary: AnyInt  # elements of a head
    columns: AnyInt  # of the tables, for them
    strides: tuple[AnyInt, AnyInt]  # of (step, head), in the tables


@dataclass(frozen=True, slots=True)
class Rotation:
    """Tables of cosines and sines in one of three forms, and the positions in them:

    - "neighbours": pairs (2j, 2j + 1), each with one angle; the rows are those of the slice [start, end). A
      row serves all heads, or has columns for each.
    - "halves": pairs (j, j + rotary / 2), each element with its own angle; the first row is `start`.
    - "pairs": pairs (2j, 2j + 1), cosine and sine side by side; a row for each head, whatever the step.
    """

    form: str
    cosines: Operand
    sines: Operand | None
    start: AnyInt | None = None
    end: AnyInt | None = None

    def angles(self, x: Operand) -> Angles:
        """The angles of x, [batch, steps, heads, width]."""
        cosines, sines, start = self.cosines, self.sines, self.start
        steps, heads, width = x.shape[1:]
        if self.form == "halves":
            assert sines is not None
            assert start is not None
            require(_are_tables(cosines, sines), "cos and sin must be matrices of one shape", cosines, sines)
            rows, rotary = cosines.shape
            fits = rotary % 2 == 0 and rotary <= width
            require(fits, "the tables must not be wider than a head", x, cosines)
            inside = start >= 0 and start + steps <= rows
            require(inside, f"positions {start} to {start + steps} leave the table", x, cosines)
            return Angles(True, cosines, sines, start, rotary, rotary, (rotary, 0))
        require(width % 2 == 0, "heads must have an even width", x)
        if self.form == "neighbours":
            assert sines is not None
            columns = width // 2
            expected = f"cos and sin must be {[steps, columns]} or {[steps, heads, columns]}"
            is_table = cosines.shape == sines.shape and cosines.rank in (2, 3)
            require(is_table, expected, x, cosines, sines)
            first, last = slice_bounds(cosines.shape[0], start, self.end)
            every = cosines.shape[1] if cosines.rank == 3 else 1
            fits = last - first == steps and every in (1, heads) and cosines.shape[-1] == columns
            require(fits, expected, x, cosines, sines)
            strides = every * columns, columns if every > 1 else 0
            return Angles(False, cosines, sines, first, width, columns, strides)
        fits = cosines.numel == heads * width
        require(fits, "freqs must have a value for each of x's columns", x, cosines)
        return Angles(False, cosines, None, 0, width, width, (0, width))


def _are_tables(cosines: Operand, sines: Operand) -> bool:
    return cosines.rank == 2 and cosines.shape == sines.shape


def rotate(
    angles: Angles,
    q: Operand,
    q_out: Operand,
    k: Operand | None = None,
    k_out: Operand | None = None,
    v: Operand | None = None,
    v_out: Operand | None = None,
    *,
    cache_start: AnyInt = 0,
    ring: int = 0,
) -> Dispatch:
    """Rotate q, and k if given; copy v. All are [batch, steps, heads, width] and differ only in heads; k and
    v are written from step `cache_start` of their outputs on, which are rings of some steps if these are
    given."""
    key_heads = k.shape[2] if k is not None else 0
    every = q.shape[2] + key_heads * (2 if v is not None else 1)
    work = q.shape[3] - angles.rotary // 2
    count = q.shape[0] * q.shape[1] * every * work
    return Dispatch(
        kernel("rope"),
        **_rotated(angles, q, q_out, k, k_out, cache_start, ring),
        v=v,
        v_out=v_out,
        count=count,
        all=every,
        threads=count,
    )


@dataclass(frozen=True, slots=True)
class Norm:
    """An RMS norm over a head's width."""

    weight: Operand
    eps: float


def norm_and_rotate(
    angles: Angles,
    q: Operand,
    q_out: Operand,
    q_norm: Norm,
    k: Operand,
    k_out: Operand,
    k_norm: Norm,
    *,
    cache_start: AnyInt,
    ring: int = 0,
    target: Target,
) -> Dispatch:
    """Norm q and k, then rotate them as `rotate` does."""
    for x, norm in ((q, q_norm), (k, k_norm)):
        fits = norm.weight.shape == x.shape[-1:]
        require(fits, "weight must have the size of x's last dim", x, norm.weight)
    every = q.shape[2] + k.shape[2]
    count = q.shape[0] * q.shape[1] * every
    layout = row_layout(target, count, q.shape[3])
    return Dispatch(
        kernel("rope_norm"),
        **layout,
        **_rotated(angles, q, q_out, k, k_out, cache_start, ring),
        query_weight=q_norm.weight,
        key_weight=k_norm.weight,
        query_eps=q_norm.eps,
        key_eps=k_norm.eps,
        count=count,
        all=every,
        groups=row_groups(target, layout, count),
    )


def _rotated(
    angles: Angles,
    q: Operand,
    q_out: Operand,
    k: Operand | None,
    k_out: Operand | None,
    cache_start: AnyInt,
    ring: int,
) -> dict[str, Any]:
    """Arguments of both kernels."""
    return {
        "HALVED": angles.halved,
        "RING": ring,
        "q": q,
        "k": k,
        "cosines": angles.cosines,
        "sines": angles.sines,
        "q_out": q_out,
        "k_out": k_out,
        "work": q.shape[3] - angles.rotary // 2,
        "steps": q.shape[1],
        "heads": q.shape[2],
        "key_heads": k.shape[2] if k is not None else 0,
        "width": q.shape[3],
        "rotary": angles.rotary,
        "columns": angles.columns,
        "start": angles.start,
        "cache_start": cache_start,
        "out_stride": k_out.strides[0] if k_out is not None else 0,
        "angle_strides": angles.strides,
    }
