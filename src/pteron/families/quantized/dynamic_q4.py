"""Products of int8 activations with 4-bit weights and what surrounds them in a layer, as one operator: an RMS
norm before them, the scales and zero points of their rows, several of one x, a gate, a residual's sum.

On a GPU one launch makes int8 of x and another multiplies; elsewhere the parts' own follow one another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pteron.dtypes import DType, Storage
from pteron.families.linear.product import ROWS_FEW
from pteron.families.norm.norm import rms_norm
from pteron.families.quantized import digits, tiled_q4
from pteron.families.quantized.ends import Ends
from pteron.families.quantized.fused_q4 import joined_biases, joined_words, shapes, silu_mul
from pteron.families.quantized.linear_q4 import linear_shape, product, sums_of, words_of
from pteron.families.quantized.qparams import choose_rows
from pteron.families.quantized.sums import apart
from pteron.families.quantized.tiled_q4 import Int8
from pteron.graph import Shape, Tensor
from pteron.ops import AnyInt, Dispatch, Operand, Scratch, Target, Weight, op
from pteron.ops.operand import joined
from pteron.ops.rows import held_rows, holds_rows, row_groups
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

# x less its zero point as floats, instead of words.
_WHOLES = {"leave": "wholes[2u * at] = low - zero; wholes[2u * at + 1u] = high - zero;"}


def _shapes(x: Operand, gain: Operand | None, eps: float, least: float | None, *rest: Any) -> list[Shape]:
    weights, _, scales, *others = rest
    return shapes(x, gain, eps, weights, scales, *others)


@op(
    "pteron.linear_dq8ca_q4",
    "x gain? eps:float least:number? weights:tensors weight_sums:tensors scales:tensors biases:tensors? "
    "group_size:int residual? gated:bool -> out:tensors",
    shape=_shapes,
)
def linear_dq8ca_q4(
    x: Operand,
    gain: Operand | None,
    eps: float,
    least: float | None,
    weights: Sequence[Operand],
    weight_sums: Sequence[Operand],
    scales: Sequence[Operand],
    biases: Sequence[Operand] | None,
    group_size: AnyInt,
    residual: Operand | None,
    gated: bool,
    *outputs: Operand,
    target: Target,
) -> Iterator[Dispatch]:
    """x, normalised where there is a gain, as int8 by the extremes of each row, times each matrix, plus its
    bias; then silu(first) · second where it is gated. The residual is added to a single product, which has no
    gate. `least` is the smallest scale."""
    if residual and (parts := apart(linear_shape(x, weights[0]), residual, outputs[0])):
        alone, total = parts
        factors = weights, weight_sums, scales, biases, group_size
        yield from linear_dq8ca_q4(x, gain, eps, least, *factors, None, gated, alone, target=target)
        yield from total
        return
    depth = x.shape[-1]
    rows = x.numel // depth if depth else 0
    least = float(np.finfo(np.float32).smallest_normal) if least is None else least
    matrices = [words_of(*each, group_size, depth) for each in zip(weights, scales, strict=True)]
    packed, bias = joined_words(matrices), joined_biases(weights, biases)
    sums = _joined_sums(
        [sums_of(*each, group_size, depth) for each in zip(weight_sums, weights, strict=True)]
    )
    is_bound = packed.fits(target)
    ends = Ends(outputs, bias, residual)
    if is_bound and _quantizes(target, x):
        norm = _norm(gain, eps)
        if digits.suits(target, rows, packed):
            made: dict[str, Any] = {"row_scales": Scratch(2 * rows), "wholes": Scratch(x.numel)}
            yield _quantized(x, gain, norm | _WHOLES, least, made, target)
            yield digits.product(made["wholes"], packed, ends, target, made["row_scales"], is_gated=gated)
            return
        int8 = Int8(Scratch(2 * rows), None, sums, Scratch(x.numel // 4, Storage.U32))
        if rows > ROWS_FEW and int8.is_packed(packed):
            made = {"row_scales": int8.scales, "words": int8.words}
            yield _quantized(x, gain, norm, least, made, target)
            yield from tiled_q4.product(x, packed, ends, target, int8, is_gated=gated)
            return
    source = x
    if gain is not None:
        source = x.scratch()
        yield from rms_norm(x, gain, eps, source, target=target)
    scale, zero = (_temporary(dtype, rows, target) for dtype in (DType.F32, DType.I8))
    yield from choose_rows(source, rows, depth, (-128.0, 127.0), least, {}, scale, zero, target)
    made_outputs = (outputs[0].scratch(), outputs[0].scratch()) if gated else outputs
    others = sum(each is not None for each in (bias, residual, *made_outputs))
    if is_bound and 5 + others <= target.buffers_max:  # x, its scales, zero points, weights, their scales
        ends = Ends(made_outputs, bias, residual)
        yield from product(source, packed, ends, target, Int8(scale, zero, sums))
    else:
        for place, (words, output) in enumerate(zip(matrices, made_outputs, strict=True)):
            own = Ends((output,), biases[place] if biases else None, residual)
            yield from product(source, words, own, target, Int8(scale, zero))
    if gated:
        yield from silu_mul(*made_outputs, *outputs, target=target)


def _quantizes(target: Target, x: Operand) -> bool:
    """Whether quantize_rows.wgsl takes x."""
    return x.storage is Storage.F32 and holds_rows(target, x.shape[-1])


def _norm(gain: Operand | None, eps: float) -> dict[str, Any]:
    return {"weighted": "value"} if gain is None else {"IS_NORMED": True, "EPS": eps}


def _quantized(
    x: Operand,
    gain: Operand | None,
    declarations: Mapping[str, Any],
    least: float,
    made: Mapping[str, Any],
    target: Target,
) -> Dispatch:
    """The launch that makes int8 of x: words with zero points, or whole numbers without."""
    rows = x.numel // x.shape[-1]
    layout = held_rows(target, x.shape[-1], 2)
    return Dispatch(
        kernel("quantize_rows", LEAST=least, **declarations, **layout),
        x=x,
        gain=gain,
        **made,
        rows=rows,
        groups=row_groups(target, layout, rows),
    )


def _joined_sums(sums: Sequence[Weight | None]) -> Weight | None:
    known = [each for each in sums if each is not None]
    return joined(known) if len(known) == len(sums) else None


def _temporary(dtype: DType, count: int, target: Target) -> Operand:
    """A row of values between the launches of one call."""
    storage = target.storage(dtype)
    return Operand(Tensor(-1, dtype, (count,)), (count,), storage, Scratch(count, storage))
