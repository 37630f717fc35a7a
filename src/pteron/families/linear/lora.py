"""LoRA: y + x·Aᵀ·B, with the matrices of each row's own adapter.

    out[m] = y[m] + (x[m] · a[which[m] - 1]ᵀ) · b[which[m] - 1]

All adapters of a layer are stacked and padded to the highest rank; `ranks` has the rank of each, 0 if it does
not change this layer. Adapter 0 is none: its rows read no matrix. Factors are part of b.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pteron.dtypes import DType
from pteron.ops import Dispatch, LiveShape, Operand, Scratch, Target, op, require
from pteron.ops.row_layout import row_groups, row_layout, row_parts
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

ROWS = "pteron.adapter_rows"
# Words of the state that holds the number of a sequence's adapter: a slot of a batch is a multiple of 256
# bytes.
CHOICE_WORDS = 64


def _rows_shape(chosen: Operand, tokens: Operand, places: Operand | None) -> LiveShape:
    fits = chosen.rank == 2 and chosen.shape[1] == CHOICE_WORDS and chosen.dtype is DType.I32
    require(fits, f"chosen must be i32 [sequences, {CHOICE_WORDS}]", chosen)
    fits = places is None or places.shape == (tokens.numel, 2)
    require(fits, "places are [rows, 2]", tokens, places)
    return (tokens.numel,)


@op(ROWS, "chosen! tokens places? -> which", shape=_rows_shape)
def adapter_rows(
    chosen: Operand, tokens: Operand, places: Operand | None, which: Operand
) -> Iterator[Dispatch]:
    """The adapter of each row: that of the sequence in its slot or, without places, of the only sequence."""
    yield Dispatch(
        kernel("lora_rows"),
        WORDS=CHOICE_WORDS,
        chosen=chosen,
        places=places,
        which=which,
        count=which.numel,
        slots=chosen.shape[0],
        threads=which.numel,
    )


def _shape(x: Operand, y: Operand, a: Operand, b: Operand, ranks: Operand, which: Operand) -> LiveShape:
    fits = a.rank == b.rank == 3 and a.shape[:2] == b.shape[:2] and ranks.shape == a.shape[:1]
    require(fits, "a must be [adapters, rank, x's columns], b [adapters, rank, y's columns]", a, b, ranks)
    fits = x.shape[-1:] == a.shape[2:] and y.shape[-1:] == b.shape[2:] and x.shape[:-1] == y.shape[:-1]
    require(fits and 0 not in (*a.shape, *b.shape), "x and y must have the columns of a and b", x, y, a, b)
    fits = which.rank == 1 and which.numel * x.shape[-1] >= x.numel
    require(fits, "which must have the adapter of each row", which, x)
    return y.shape


@op("pteron.lora", "x y a b ranks which -> out", shape=_shape)
def lora(
    x: Operand,
    y: Operand,
    a: Operand,
    b: Operand,
    ranks: Operand,
    which: Operand,
    out: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    """If there are more numbers in `which` than rows, those of the last rows count: the output matrix is
    applied to the last token only."""
    (adapters, rank, depth), columns = a.shape, b.shape[2]
    rows = x.numel // depth
    layout = row_layout(target, rows * rank, depth)
    parts, span = row_parts(layout, depth)
    down = Scratch(parts * rows * rank)
    shared: dict[str, Any] = {
        "rows": rows,
        "adapters": adapters,
        "rank": rank,
        "first": which.numel - rows,
        "parts": parts,
    }
    yield Dispatch(
        kernel("lora_down"),
        **layout,
        x=x,
        a=a,
        ranks=ranks,
        which=which,
        out=down,
        depth=depth,
        span=span,
        **shared,
        groups=row_groups(target, layout, parts * rows * rank),
    )
    yield Dispatch(
        kernel("lora_up"),
        y=y,
        down=down,
        b=b,
        ranks=ranks,
        which=which,
        out=out,
        columns=columns,
        **shared,
        threads=rows * columns,
    )
