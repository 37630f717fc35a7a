"""Choosing the scale and zero point by which a row of activations becomes int8."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np

from pteron.graph import Shape
from pteron.ops import AnyInt, Dispatch, Operand, Scratch, Target, op, require
from pteron.ops.rows import row_groups, row_layout, row_parts
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

# What a part of a row leaves: its least and its greatest element.
_EXTREMES = {"conclude": "extremes[2u * part] = E(least); extremes[2u * part + 1u] = E(most);"}


def _qparams_shapes(
    x: Operand, mapping_type: str, block_size: Sequence[AnyInt], *rest: object
) -> tuple[Shape, Shape]:
    keepdim = bool(rest[-1])
    whole_rows = x.rank > 0 and tuple(block_size) == (1,) * (x.rank - 1) + x.shape[-1:]
    require(whole_rows, f"blocks must be whole rows of x, not {list(block_size)}", x)
    row = (*x.shape[:-1], 1) if keepdim else x.shape[:-1]
    return row, row


@op(
    "torchao.choose_qparams_affine.default",
    "input mapping_type:str block_size:ints target_dtype:ignored quant_min:number? quant_max:number? "
    "eps:number? scale_dtype:ignored zero_point_dtype:ignored keepdim:bool -> scale zero_point",
    shape=_qparams_shapes,
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
    require(mapping_type == "ASYMMETRIC", f"mapping_type {mapping_type!r} is not ASYMMETRIC")
    rows, source, length = scale.numel, cast(Operand | Scratch, x), x.shape[-1]
    while True:
        layout = row_layout(target, rows, length)
        parts, span = row_parts(layout, length)
        extremes = Scratch(rows * parts * 2)
        results = {"scale": scale, "zero_point": zero_point} if parts == 1 else {"extremes": extremes}
        yield Dispatch(
            kernel("choose_qparams", **({} if parts == 1 else _EXTREMES), **layout),
            x=source,
            **results,
            rows=rows,
            parts=parts,
            length=length,
            span=span,
            low=-128.0 if quant_min is None else quant_min,
            high=127.0 if quant_max is None else quant_max,
            eps=float(np.finfo(np.float32).eps) if eps is None else eps,
            groups=row_groups(target, layout, rows * parts),
        )
        if parts == 1:
            return
        source, length = extremes, 2 * parts
