"""Choosing the scales and zero points by which rows, blocks or whole tensors become integers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from pteron.dtypes import DType
from pteron.families.quantized.affine import blocks
from pteron.ops import AnyInt, Dispatch, LiveShape, Operand, Scratch, Target, op, require
from pteron.ops.row_layout import WALK_MAX, row_groups, row_layout, split
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

ROWS_FEW = 64  # fewer rows are split into more parts, to keep the device busy,
WALK_FEW = 64  # with at most this many elements per invocation

MAPPINGS: dict[str, dict[str, bool]] = {
    "ASYMMETRIC": {},
    "SYMMETRIC": {"IS_SYMMETRIC": True},
    "SYMMETRIC_NO_CLIPPING_ERR": {"IS_SYMMETRIC": True, "CLIPS_NOTHING": True},
}


def choose_rows(
    x: Operand,
    rows: AnyInt,
    length: AnyInt,
    bounds: tuple[float, float],
    eps: float,
    mapping: Mapping[str, bool],
    scale: Operand,
    zero_point: Operand,
    target: Target,
) -> Iterator[Dispatch]:
    """The parameters of contiguous rows; long rows are reduced in parts."""
    low, high = bounds
    require(low < high, f"the range of quantised numbers, {low} to {high}, is empty")
    fits = scale.dtype.is_float and not zero_point.dtype.is_float
    require(fits, "scales must be floats and zero points integers", scale, zero_point)
    source = cast(Operand | Scratch, x)
    walk = WALK_MAX if target.is_cpu or rows >= ROWS_FEW else WALK_FEW
    while True:
        layout = row_layout(target, rows, length)
        parts, span = split(length, walk * int(layout["LANES"]))
        extremes = Scratch(rows * parts * 2)
        results = {"scale": scale, "zero_point": zero_point} if parts == 1 else {"extremes": extremes}
        yield Dispatch(
            kernel("choose_qparams"),
            **layout,
            **mapping,
            x=source,
            **results,
            rows=rows,
            parts=parts,
            length=length,
            span=span,
            low=low,
            high=high,
            eps=eps,
            groups=row_groups(target, layout, rows * parts),
        )
        if parts == 1:
            return
        source, length = extremes, 2 * parts


def _block_shapes(
    x: Operand, mapping_type: str, block_size: Sequence[AnyInt], *rest: object
) -> tuple[LiveShape, LiveShape]:
    in_rows = blocks(x, block_size).strides in ((), (0,), (1,), (1, 0))
    require(in_rows, f"elements of a block must be neighbours, not blocks of {list(block_size)}", x)
    dims = list(zip(x.shape, (int(block) for block in block_size), strict=True))
    if rest[-1]:  # keepdim
        shape = tuple(1 if size == block else size // block for size, block in dims)
    else:
        shape = tuple(size // block for size, block in dims if block == 1 or block != size)
    return shape, shape


@op(
    "torchao.choose_qparams_affine.default",
    "input mapping_type:str block_size:ints target_dtype:ignored quant_min:number? quant_max:number? "
    "eps:float? scale_dtype:ignored zero_point_dtype:ignored keepdim:bool -> scale zero_point",
    shape=_block_shapes,
)
def choose_qparams_affine(
    x: Operand,
    mapping_type: str,
    block_size: Sequence[AnyInt],
    quant_min: float | None,
    quant_max: float | None,
    eps: float | None,
    keepdim: bool,
    scale: Operand,
    zero_point: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    mapping = MAPPINGS.get(mapping_type)
    if mapping is None:
        require(False, f"mapping_type {mapping_type!r} must be one of {', '.join(MAPPINGS)}")
    bounds = (-128.0 if quant_min is None else quant_min, 127.0 if quant_max is None else quant_max)
    no_clipping = mapping_type == "SYMMETRIC_NO_CLIPPING_ERR"
    require(
        not no_clipping or bounds[0] < 0 < bounds[1], f"{mapping_type} needs bounds on both sides of zero"
    )
    narrow = np.float16 if x.dtype is DType.F16 else np.float32
    least = float(np.finfo(narrow).smallest_normal) if eps is None else eps
    rows = scale.numel
    length = x.numel // rows if rows else 0
    yield from choose_rows(x, rows, length, bounds, least, mapping or {}, scale, zero_point, target)


@op(
    "quantized_decomposed.choose_qparams.tensor",
    "input quant_min:int quant_max:int eps:float dtype:ignored -> scale zero_point",
    shape=lambda *_: ((1,), (1,)),
)
def choose_qparams(
    x: Operand, quant_min: AnyInt, quant_max: AnyInt, eps: float, *outputs: Any, target: Target
) -> Iterator[Dispatch]:
    bounds = float(quant_min), float(quant_max)
    yield from choose_rows(x, 1, x.numel, bounds, eps, {}, outputs[0], outputs[1], target)


def _token_shapes(x: Operand) -> tuple[LiveShape, LiveShape]:
    require(x.rank > 0, "a scalar has no rows", x)
    return (*x.shape[:-1], 1), (*x.shape[:-1], 1)


@op(
    "quantized_decomposed.choose_qparams_per_token_asymmetric.default",
    "input dtype:ignored -> scale zero_point",
    shape=_token_shapes,
)
def choose_qparams_per_token_asymmetric(
    x: Operand, scale: Operand, zero_point: Operand, *, target: Target
) -> Iterator[Dispatch]:
    eps = float(np.finfo(np.float32).eps)
    rows, bounds = scale.numel, (-128.0, 127.0)
    yield from choose_rows(
        x, rows, x.shape[-1], bounds, eps, {"IS_NEARER_END": True}, scale, zero_point, target
    )
