"""Values of a dim in order, and where they were: sort, topk.

Short rows are ranked: each element is compared with all others. Longer ones go through a bitonic sort, one
dispatch per step. Equal elements keep their order, and a NaN is larger than any number.
"""

from __future__ import annotations

from collections.abc import Iterator

from pteron.dtypes import Storage
from pteron.ops import AnyInt, Dispatch, LiveShape, Operand, Scratch, op, require
from pteron.ops.operand import compute_type
from pteron.ops.shapes import axis
from pteron.wgsl import Kernels

kernel = Kernels(__name__)
RANKED_MAX = 512  # elements of a row


def sorted_rows(
    x: Operand, at: int, kept: AnyInt, descending: bool, values: Operand, indices: Operand
) -> Iterator[Dispatch]:
    """The first `kept` elements along a dim, in order, and their indices."""
    if values.numel == 0:
        return
    length, stride = (x.shape[at], x.strides[at]) if x.rank else (1, 1)
    rows = x.numel // length
    if length <= RANKED_MAX:
        places, order = length, Scratch(x.numel, Storage.I32)
        yield Dispatch(
            kernel("sort_ranks", T=compute_type(x)),
            DESCENDING=descending,
            x=x,
            order=order,
            count=x.numel,
            length=length,
            stride=stride,
            threads=x.numel,
        )
    else:
        places = 1 << (length - 1).bit_length()
        order = Scratch(rows * places, Storage.I32)
        yield from _bitonic(x, descending, order, rows, length, stride, places)
    yield Dispatch(
        kernel("sort_take"),
        x=x,
        order=order,
        values=values,
        indices=indices,
        count=rows * kept,
        kept=kept,
        length=length,
        stride=stride,
        places=places,
        threads=rows * kept,
    )


def _bitonic(
    x: Operand,
    descending: bool,
    order: Scratch,
    rows: AnyInt,
    length: AnyInt,
    stride: AnyInt,
    places: int,
) -> Iterator[Dispatch]:
    block, is_first = 2, True
    while block <= places:
        distance = block // 2
        while distance:
            pairs = rows * places // 2
            yield Dispatch(
                kernel("sort_step", T=compute_type(x)),
                FIRST=is_first,
                DESCENDING=descending,
                x=x,
                order=order,
                count=pairs,
                length=length,
                stride=stride,
                places=places,
                block=block,
                distance=distance,
                threads=pairs,
            )
            distance, is_first = distance // 2, False
        block *= 2


def _sort_shapes(x: Operand, *_: object) -> tuple[LiveShape, LiveShape]:
    return x.shape, x.shape


@op("aten.sort.default", "self dim:int descending:bool -> values indices", shape=_sort_shapes)
def sort(x: Operand, dim: int, descending: bool, values: Operand, indices: Operand) -> Iterator[Dispatch]:
    at = axis(dim, max(x.rank, 1))
    return sorted_rows(x, at, x.shape[at] if x.rank else 1, descending, values, indices)


def _topk_shapes(x: Operand, k: AnyInt, dim: int, *_: object) -> tuple[LiveShape, LiveShape]:
    at, kept = axis(dim, max(x.rank, 1)), int(k)
    length = x.shape[at] if x.rank else 1
    require(0 <= kept <= length, f"topk of {kept} elements: dim {dim} has {length}", x)
    shape = (*x.shape[:at], kept, *x.shape[at + 1 :]) if x.rank else ()
    return shape, shape


@op("aten.topk.default", "self k:int dim:int largest:bool sorted:bool -> values indices", shape=_topk_shapes)
def topk(
    x: Operand, k: AnyInt, dim: int, largest: bool, sorted: bool, values: Operand, indices: Operand
) -> Iterator[Dispatch]:
    return sorted_rows(x, axis(dim, max(x.rank, 1)), int(k), largest, values, indices)
