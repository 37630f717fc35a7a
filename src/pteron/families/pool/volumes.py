"""Pooling of volumes: planes are pooled first, then the results along the depth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pteron.dtypes import Storage
from pteron.families.pool.pool import averages, maxima, pooled_shape
from pteron.ops import Dispatch, LiveShape, Operand, Scratch, numel, op, require
from pteron.ops.window import SlidingWindow


def _windows(
    size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
) -> tuple[SlidingWindow, SlidingWindow]:
    """A window over volumes as one over their planes, and one along the depth of planes that are rows."""

    def three(numbers: Sequence[int]) -> list[int]:
        require(len(numbers) in (1, 3), f"{list(numbers)} must be one number or three")
        return [int(numbers[0])] * 3 if len(numbers) == 1 else [int(number) for number in numbers]

    sizes, strides, paddings, dilations = map(three, (size, stride or size, padding, dilation))
    over_planes = SlidingWindow.of(sizes[1:], strides[1:], paddings[1:], dilations[1:])
    return over_planes, SlidingWindow.of((sizes[0], 1), (strides[0], 1), (paddings[0], 0), (dilations[0], 1))


def _shape(x: Operand, planes: SlidingWindow, depth: SlidingWindow, ceil_mode: bool) -> LiveShape:
    require(x.rank in (4, 5) and x.dtype.is_float, "pools of volumes take four or five dims of floats", x)
    between = pooled_shape(x.reshaped((1, *x.shape[-3:])), planes, ceil_mode)
    length, _ = depth.places((x.shape[-3], 1), ceil=ceil_mode)
    return (*x.shape[:-3], length, *between[-2:])


def _flat(shape: LiveShape) -> LiveShape:
    """Volumes as planes whose rows are the planes of the volumes."""
    return (numel(shape[:-3]), shape[-3], numel(shape[-2:]))


@op(
    "aten.avg_pool3d.default",
    "self kernel_size:ints stride:ints padding:ints ceil_mode:bool count_include_pad:bool "
    "divisor_override:int? -> out",
    shape=lambda x, size, stride, padding, ceil_mode, *_: _shape(
        x, *_windows(size, stride, padding), ceil_mode
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
) -> Iterator[Dispatch]:
    require(divisor_override != 0, "divisor_override must not be zero", x)
    divisor = None if divisor_override is None else float(divisor_override)
    planes, depth = _windows(kernel_size, stride, padding)
    between = (*x.shape[:-2], *out.shape[-2:])
    of_planes = Scratch(numel(between))
    yield averages(
        x, x.shape, of_planes, between, planes, count_include_pad, None if divisor is None else 1.0
    )
    yield averages(of_planes, _flat(between), out, _flat(out.shape), depth, count_include_pad, divisor)


def _largest_shapes(x: Operand, *arguments: Sequence[int]) -> tuple[LiveShape, LiveShape]:
    *numbers, ceil_mode = arguments
    shape = _shape(x, *_windows(*numbers), bool(ceil_mode))
    return shape, shape


@op(
    "aten.max_pool3d_with_indices.default",
    "self kernel_size:ints stride:ints padding:ints dilation:ints ceil_mode:bool -> out indices?",
    shape=_largest_shapes,
)
def largest_pool(
    x: Operand,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    out: Operand,
    indices: Operand | None,
) -> Iterator[Dispatch]:
    whole = indices is None or indices.storage is Storage.I32
    require(whole, "indices are integers of 32 or 64 bits", x, indices)
    planes, depth = _windows(kernel_size, stride, padding, dilation)
    between = (*x.shape[:-2], *out.shape[-2:])
    of_planes = Scratch(numel(between))
    within = Scratch(numel(between), Storage.I32) if indices is not None else None
    yield maxima(x, x.shape, None, of_planes, between, within, planes)
    plane = numel(x.shape[-2:])
    yield maxima(of_planes, _flat(between), within, out, _flat(out.shape), indices, depth, plane)
