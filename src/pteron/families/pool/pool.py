"""Average and maximum pooling of planes under sliding windows.

A window that is the whole plane is a reduction. A window too large for one invocation is pooled along the
width, then along the height."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pteron.dtypes import Storage
from pteron.families.reduce.fold import LARGEST, SUM, Rows, fold, strided_rows
from pteron.ops import AnyInt, Dispatch, LiveShape, Operand, Scratch, Target, define, numel, op, require
from pteron.ops.window import SlidingWindow
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

# Elements that one invocation reads. Pooling along one dim, then along the other keeps loops short, takes
# fewer loads if windows overlap, and gives more invocations to few windows.
WINDOW_MAX = 128


def pooled_shape(x: Operand, window: SlidingWindow, ceil_mode: bool) -> LiveShape:
    require(x.rank in (3, 4) and x.dtype.is_float, "pools take three or four dims of floats", x)
    require(0 not in x.shape[-3:], "pools take planes and channels that are not empty", x)
    half = all(2 * padding <= reach for padding, reach in zip(window.padding, window.reach, strict=True))
    require(half, f"{window}: padding must be at most half of what a window reaches", x)
    return (*x.shape[:-2], *window.places(x.shape[-2:], ceil=ceil_mode))


def _planes(x: Operand, window: SlidingWindow) -> Rows | None:
    """All planes as rows, if one window is exactly a plane."""
    covers = window.padding == (0, 0) and window.dilation == (1, 1) and window.size == x.shape[-2:]
    return strided_rows(x, numel(x.shape[:-2]), numel(x.shape[-2:])) if covers else None


def _split(window: SlidingWindow) -> tuple[SlidingWindow, SlidingWindow] | None:
    """A window along the width and one along the height, if the window is too large for one invocation."""
    if numel(window.size) <= WINDOW_MAX or min(window.size) == 1:
        return None
    (height, width), (down, right) = window.size, window.stride
    (above, left), (rows, columns) = window.padding, window.dilation
    along_width = SlidingWindow((1, width), (1, right), (0, left), (1, columns))
    return along_width, SlidingWindow((height, 1), (down, 1), (above, 0), (rows, 1))


def _parameters(shape: LiveShape, out_shape: LiveShape, window: SlidingWindow) -> dict[str, Any]:
    """Planes and window as members of a kernel's Params."""
    return {
        **window.parameters,
        "planes": numel(shape[:-2]),
        "height": shape[-2],
        "width": shape[-1],
        "out_height": out_shape[-2],
        "out_width": out_shape[-1],
    }


# Average ----------------------------------------------------------------------------------------


@op(
    "aten.avg_pool2d.default",
    "self kernel_size:ints stride:ints padding:ints ceil_mode:bool count_include_pad:bool "
    "divisor_override:int? -> out",
    shape=lambda x, size, stride, padding, ceil_mode, *_: pooled_shape(
        x, SlidingWindow.of(size, stride, padding), ceil_mode
    ),
)
def average_pool(
    x: Operand,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
    out: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    window = SlidingWindow.of(kernel_size, stride, padding)
    require(divisor_override != 0, "divisor_override must not be zero", x)
    divisor = None if divisor_override is None else float(divisor_override)
    if planes := _planes(x, window):
        by = "f32(params.count)" if divisor is None else str(divisor)
        yield from fold(planes, out, target, SUM, finish=f"total / {by}")
        return
    halves = _split(window)
    if halves is None:
        yield averages(x, x.shape, out, out.shape, window, count_include_pad, divisor)
        return
    # The count of a window is the product of its counts along both dims, so averages can be taken in turn.
    along_width, along_height = halves
    shape = (*x.shape[:-1], out.shape[-1])
    rows = Scratch(numel(shape))
    yield averages(x, x.shape, rows, shape, along_width, count_include_pad, None if divisor is None else 1.0)
    yield averages(rows, shape, out, out.shape, along_height, count_include_pad, divisor)


def averages(
    x: Operand | Scratch,
    shape: LiveShape,
    out: Operand | Scratch,
    out_shape: LiveShape,
    window: SlidingWindow,
    counts_padding: bool,
    divisor: float | None,
) -> Dispatch:
    """The average of each window: its sum by a divisor, or by the number of its elements."""
    sizes = _parameters(shape, out_shape, window)
    undilated = {name: size for name, size in sizes.items() if not name.startswith("dilation")}
    return Dispatch(
        kernel("average_pool"),
        HAS_DIVISOR=divisor is not None,
        COUNTS_PADDING=counts_padding,
        x=x,
        out=out,
        **undilated,
        divisor=divisor or 0.0,
        threads=numel(out_shape),
    )


# Maximum ----------------------------------------------------------------------------------------


def _largest_shape(x: Operand, *arguments: Sequence[int]) -> LiveShape:
    *window, ceil_mode = arguments
    return pooled_shape(x, SlidingWindow.of(*window), bool(ceil_mode))


def largest_pool(
    x: Operand,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    out: Operand,
    indices: Operand | None = None,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    """The maximum of each window, and its index in the plane where the graph takes it."""
    whole = indices is None or indices.storage is Storage.I32
    require(whole, "indices are integers of 32 or 64 bits", x, indices)
    window = SlidingWindow.of(kernel_size, stride, padding, dilation)
    planes = _planes(x, window)
    if indices is None and planes:
        yield from fold(planes, out, target, LARGEST)
        return
    halves = _split(window)
    if halves is None:
        yield maxima(x, x.shape, None, out, out.shape, indices, window)
        return
    along_width, along_height = halves
    shape = (*x.shape[:-1], out.shape[-1])
    rows = Scratch(numel(shape))
    plane_indices = Scratch(numel(shape), Storage.I32) if indices is not None else None
    yield maxima(x, x.shape, None, rows, shape, plane_indices, along_width)
    yield maxima(rows, shape, plane_indices, out, out.shape, indices, along_height)


def maxima(
    x: Operand | Scratch,
    shape: LiveShape,
    plane_indices: Scratch | None,
    out: Operand | Scratch,
    out_shape: LiveShape,
    indices: Operand | Scratch | None,
    window: SlidingWindow,
    plane: AnyInt | None = None,
) -> Dispatch:
    """The maximum of each window. `plane_indices` has the index of each element of x in its plane, if that is
    not the element's own. If each row of x is itself a plane, that has `plane` elements."""
    return Dispatch(
        kernel("largest_pool"),
        OF_PLANES=plane is not None,
        x=x,
        plane_indices=plane_indices if indices is not None else None,
        out=out,
        indices=indices,
        **_parameters(shape, out_shape, window),
        plane=0 if plane is None else plane,
        threads=numel(out_shape),
    )


_WINDOW = "self kernel_size:ints stride:ints padding:ints dilation:ints ceil_mode:bool"
define("aten.max_pool2d.default", f"{_WINDOW} -> out", shape=_largest_shape, compute=largest_pool)
define(
    "aten.max_pool2d_with_indices.default",
    f"{_WINDOW} -> out indices?",
    shape=lambda *arguments: (_largest_shape(*arguments),) * 2,
    compute=largest_pool,
)
