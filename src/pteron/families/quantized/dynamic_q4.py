"""Rows of x as int8 words by one launch (quantize_rows.wgsl): an RMS norm, where there is one, the scales and
zero points that fit the extremes of the rows, and the steps of these."""

from __future__ import annotations

from pteron.dtypes import Storage
from pteron.families.quantized.tiled_q4 import Int8
from pteron.ops import Dispatch, Operand, Target
from pteron.ops.rows import row_groups, shared_rows
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

LANES = 256  # at most, that share a row of x,
TURNS_MAX = 16  # and eights of it that each of them holds


def quantizes(target: Target, x: Operand) -> bool:
    """Whether the kernel takes x."""
    words, rest = divmod(x.shape[-1], 8)
    return not target.is_cpu and x.storage is Storage.F32 and rest == 0 < words <= LANES * TURNS_MAX


def quantized(
    x: Operand, gain: Operand | None, eps: float, least: float, made: Int8, target: Target
) -> Dispatch:
    """The launch that leaves words and factors of x."""
    words = x.shape[-1] // 8
    rows = x.numel // x.shape[-1]
    layout = shared_rows(target, min(LANES, max(32, 1 << (words - 1).bit_length())), 1)
    norm = {"weighted": "value"} if gain is None else {"IS_NORMED": True, "EPS": eps}
    return Dispatch(
        kernel("quantize_rows", WORDS=words, LEAST=least, **norm, **layout),
        x=x,
        gain=gain,
        x_scales=made.scales,
        words=made.words,
        rows=rows,
        groups=row_groups(target, layout, rows),
    )
