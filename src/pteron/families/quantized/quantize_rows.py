"""Rows of x as int8 words by one launch (quantize_rows.wgsl): an RMS norm, where there is one, the scales and
zero points that fit the extremes of the rows, and the steps of these."""

from __future__ import annotations

from pteron.dtypes import Storage
from pteron.families.quantized.tiled_q4 import Int8
from pteron.ops import Dispatch, Operand, Target
from pteron.ops.row_layout import fits_registers, register_rows, row_groups
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


def quantizes(target: Target, x: Operand) -> bool:
    """Whether the kernel takes x."""
    return x.storage is Storage.F32 and fits_registers(target, x.shape[-1])


def quantized(
    x: Operand, gain: Operand | None, eps: float, least: float, made: Int8, target: Target
) -> Dispatch:
    """The launch that leaves words and factors of x."""
    rows = x.numel // x.shape[-1]
    # Norms are rounded the same way for few rows: lib/planes_int8.wgsl.
    layout = register_rows(target, rows, x.shape[-1], 2, in_one_order=gain is not None)
    norm = {"weighted": "value"} if gain is None else {"IS_NORMED": True, "EPS": eps}
    return Dispatch(
        kernel("quantize_rows", LEAST=least, **norm, **layout),
        x=x,
        gain=gain,
        row_scales=made.scales,
        words=made.words,
        rows=rows,
        groups=row_groups(target, layout, rows),
    )
