"""Maximum pooling, with the places of the maxima where they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pteron.dtypes import Storage
from pteron.families.pool.planes import covers_plane, halves, is_cut, plane_parameters, pooled_shape
from pteron.families.reduce.fold import LARGEST, fold, strided_rows
from pteron.graph import Shape
from pteron.graph.values import numel
from pteron.ops import Dispatch, Operand, Scratch, Target, op, require
from pteron.ops.window import Window
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

_ARGUMENTS = "self kernel_size:ints stride:ints padding:ints dilation:ints ceil_mode:bool"


def _largest_shape(x: Operand, *arguments: Sequence[int]) -> Shape:
    *window, ceil_mode = arguments
    return pooled_shape(x, Window.of(*window), bool(ceil_mode))


@op("aten.max_pool2d.default", f"{_ARGUMENTS} -> out", shape=_largest_shape)
def largest_pool(
    x: Operand,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    out: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    return _pool(x, Window.of(kernel_size, stride, padding, dilation), out, None, target)


@op(
    "aten.max_pool2d_with_indices.default",
    f"{_ARGUMENTS} -> out indices?",
    shape=lambda *arguments: (_largest_shape(*arguments),) * 2,
)
def largest_pool_with_indices(
    x: Operand,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    out: Operand,
    indices: Operand | None,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    whole = indices is None or indices.storage is Storage.I32
    require(whole, "indices are integers of 32 or 64 bits", x, indices)
    return _pool(x, Window.of(kernel_size, stride, padding, dilation), out, indices, target)


def _pool(
    x: Operand, window: Window, out: Operand, indices: Operand | None, target: Target
) -> Iterator[Dispatch]:
    if indices is None and covers_plane(x, window):
        planes = strided_rows(x, numel(x.shape[:-2]), numel(x.shape[-2:]))
        yield from fold(planes, out, target, LARGEST)
        return
    if not is_cut(window):
        yield _maxima(x, x.shape, None, out, out.shape, indices, window)
        return
    along_width, along_height = halves(window)
    shape = (*x.shape[:-1], out.shape[-1])
    rows = Scratch(numel(shape))
    places = Scratch(numel(shape), Storage.I32) if indices is not None else None
    yield _maxima(x, x.shape, None, rows, shape, places, along_width)
    yield _maxima(rows, shape, places, out, out.shape, indices, along_height)


def _maxima(
    x: Operand | Scratch,
    shape: Shape,
    places: Scratch | None,
    out: Operand | Scratch,
    out_shape: Shape,
    indices: Operand | Scratch | None,
    window: Window,
) -> Dispatch:
    """The largest under each place of the window; `places` is the index of that element in its plane of x,
    where that is not its own."""
    declarations = {} if indices is not None else {"note": "return;"}
    if places is not None:
        declarations["place"] = "places[element]"
    return Dispatch(
        kernel("largest_pool", **declarations),
        x=x,
        places=places,
        out=out,
        indices=indices,
        **plane_parameters(shape, out_shape, window),
        threads=numel(out_shape),
    )
