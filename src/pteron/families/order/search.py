"""Places of values in sorted rows."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.ops import Dispatch, LiveShape, Operand, numel, op, require
from pteron.ops.operand import compute_type
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


def _shape(sequence: Operand, values: Operand, *_: object) -> LiveShape:
    rows = sequence.shape[:-1]
    fits = sequence.rank == 1 or (sequence.rank > 1 and rows == values.shape[:-1])
    require(fits, "a sorted sequence has one dim, or all dims of the values but the last", sequence, values)
    return values.shape


@op(
    "aten.searchsorted.Tensor",
    "sorted_sequence self out_int32:ignored right:bool side:str? sorter? -> out",
    shape=_shape,
)
def searchsorted(
    sequence: Operand,
    values: Operand,
    right: bool,
    side: str | None,
    sorter: Operand | None,
    out: Operand,
) -> Iterator[Dispatch]:
    require(sorter is None, "searchsorted takes no sorter: sort the sequence first", sequence)
    after_equal = right or side == "right"
    yield Dispatch(
        kernel("searchsorted", T=compute_type(sequence, values)),
        AFTER_EQUAL=after_equal,
        sequence=sequence,
        values=values,
        out=out,
        count=values.numel,
        rows=numel(sequence.shape[:-1]),
        length=sequence.shape[-1],
        threads=values.numel,
    )
