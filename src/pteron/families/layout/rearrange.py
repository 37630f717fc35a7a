"""Operators that move elements: permutations, slices, repeats, concatenations, splits, pixel shuffle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeGuard

from pteron.families.create.fill import fill
from pteron.families.layout.copy import copy_elements, copy_strided
from pteron.ops import (
    AnyInt,
    Dispatch,
    LiveInt,
    LiveShape,
    Operand,
    define,
    numel,
    op,
    require,
    same_shape,
    settled,
)
from pteron.ops.operand import contiguous_strides
from pteron.ops.shapes import axes, axis, broadcast_strides, check_live_slice
from pteron.ops.window import LivePair
from pteron.wgsl import Kernels

kernel = Kernels(__name__)
TO_END = (1 << 63) - 1  # how the exporter writes an absent end of a slice


def _permuted(x: Operand, dims: Sequence[int]) -> LiveShape:
    order = [axis(d, x.rank) for d in dims]
    require(sorted(order) == list(range(x.rank)), f"dims {list(dims)} must be a permutation", x)
    return tuple(x.shape[d] for d in order)


def _permute(x: Operand, dims: Sequence[int], out: Operand) -> Iterator[Dispatch]:
    strides = tuple(x.strides[axis(d, x.rank)] for d in dims)
    yield copy_strided(x, out, out.shape, strides, out.strides)


define("aten.permute.default", "self dims:ints -> out", shape=_permuted, compute=_permute)
define("aten.permute_copy.default", "self dims:ints -> out", shape=_permuted, compute=_permute)


def _transposed(x: Operand) -> LiveShape:
    require(x.rank <= 2, "t takes at most two dims", x)
    return x.shape[::-1]


@op("aten.t_copy.default", "self -> out", shape=_transposed)
def _transpose(x: Operand, out: Operand) -> Iterator[Dispatch]:
    yield copy_strided(x, out, out.shape, x.strides[::-1], out.strides)


def _replaced(shape: LiveShape, dim: int, size: AnyInt) -> LiveShape:
    return (*shape[:dim], size, *shape[dim + 1 :])


def slice_bounds(size: AnyInt, start: AnyInt | None, end: AnyInt | None) -> tuple[AnyInt, AnyInt]:
    """A slice's start and end within [0, size], by Python's rules. Two positions must be within it; bounds
    that follow dims need not."""
    if _is_position(start) and _is_position(end):
        check_live_slice(size, start, end)

    def clamp(position: AnyInt) -> AnyInt:
        if position < 0:
            position = position + size
        return 0 if position < 0 else size if position > size else position

    first = clamp(0 if start is None else start)
    last = clamp(size if end is None or (isinstance(end, int) and end == TO_END) else end)
    return first, first if last < first else last


def _is_position(bound: AnyInt | None) -> TypeGuard[LiveInt]:
    return isinstance(bound, LiveInt) and not bound.is_of_dims


def _slice_shape(x: Operand, dim: int, start: AnyInt | None, end: AnyInt | None, step: int) -> LiveShape:
    require(step >= 1, f"slice step must be positive, got {step}", x)
    at = axis(dim, x.rank)
    first, last = slice_bounds(x.shape[at], start, end)
    return _replaced(x.shape, at, (last - first + step - 1) // step if step > 1 else last - first)


@op(
    "aten.slice_copy.Tensor",
    "self dim:int start:int? end:int? step:int -> out",
    shape=_slice_shape,
)
def _slice(
    x: Operand, dim: int, start: AnyInt | None, end: AnyInt | None, step: int, out: Operand
) -> Iterator[Dispatch]:
    at = axis(dim, x.rank)
    first, _ = slice_bounds(x.shape[at], start, end)
    strides = tuple(s * step if d == at else s for d, s in enumerate(x.strides))
    yield copy_strided(x, out, out.shape, strides, out.strides, x_offset=first * x.strides[at])


def _select_shape(x: Operand, dim: int, index: AnyInt) -> LiveShape:
    at = axis(dim, x.rank)
    size = x.shape[at] if x.rank else 0
    require(index >= -size and index < size, f"select of dim {dim} at {index}: there are {size} places", x)
    return x.shape[:at] + x.shape[at + 1 :]


@op("aten.select_copy.int", "self dim:int index:int -> out", shape=_select_shape)
def _select(x: Operand, dim: int, index: AnyInt, out: Operand) -> Iterator[Dispatch]:
    at = axis(dim, x.rank)
    position = index + x.shape[at] if index < 0 else index
    strides = x.strides[:at] + x.strides[at + 1 :]
    yield copy_strided(x, out, out.shape, strides, out.strides, x_offset=position * x.strides[at])


@op("aten.flip.default", "self dims:ints -> out", shape=same_shape)
def _flip(x: Operand, dims: Sequence[int], out: Operand) -> Iterator[Dispatch]:
    flipped = axes(dims, x.rank) if dims else ()
    strides = tuple(-s if d in flipped else s for d, s in enumerate(x.strides))
    last = sum((x.shape[d] - 1) * x.strides[d] for d in flipped)
    yield copy_strided(x, out, out.shape, strides, out.strides, x_offset=last)


def _expand_shape(x: Operand, size: Sequence[AnyInt], implicit: bool = False) -> LiveShape:
    sizes = [settled(length) for length in size]
    lead = len(sizes) - x.rank
    require(lead >= 0, f"expand to {sizes}: no dim of x may be left out", x)
    aligned = (1,) * lead + x.shape
    result = tuple(old if new == -1 else new for old, new in zip(aligned, sizes, strict=True))
    fits = all(old in (1, new) for old, new in zip(aligned, result, strict=True))
    require(fits, f"expand to {sizes}: only dims of size 1 grow", x)
    return result


@op("aten.expand_copy.default", "self size:ints implicit:bool -> out", shape=_expand_shape)
def _expand(x: Operand, size: Sequence[AnyInt], implicit: bool, out: Operand) -> Iterator[Dispatch]:
    yield copy_strided(x, out, out.shape, broadcast_strides(x.shape, out.shape), out.strides)


def _repeat_shape(x: Operand, repeats: Sequence[AnyInt]) -> LiveShape:
    require(len(repeats) >= x.rank, f"repeat by {list(repeats)}: each dim of x takes a number", x)
    aligned = (1,) * (len(repeats) - x.rank) + x.shape
    return tuple(settled(times) * size for times, size in zip(repeats, aligned, strict=True))


@op("aten.repeat.default", "self repeats:ints -> out", shape=_repeat_shape)
def _repeat(x: Operand, repeats: Sequence[AnyInt], out: Operand) -> Iterator[Dispatch]:
    # Each dim becomes two, (times, size); the source only has the second.
    lead = len(repeats) - x.rank
    aligned = (1,) * lead + x.shape
    steps = (0,) * lead + x.strides
    pairs = tuple(length for pair in zip(map(settled, repeats), aligned, strict=True) for length in pair)
    strides = tuple(step for s in steps for step in (0, s))
    yield copy_strided(x, out, pairs, strides, contiguous_strides(pairs))


def _nonempty(tensors: Sequence[Operand]) -> list[Operand]:
    # PyTorch allows an empty 1-d tensor among tensors of any rank.
    return [tensor for tensor in tensors if tensor.shape != (0,)] or list(tensors[:1])


def _cat_shape(tensors: Sequence[Operand], dim: int) -> LiveShape:
    given = bool(tensors) and None not in tensors
    require(given, "cat takes one tensor or more, each of them given", *tensors)
    parts = _nonempty(tensors)
    at = axis(dim, parts[0].rank)
    for part in parts:
        require(part.rank == parts[0].rank, "cat takes tensors of one rank", *parts)
        others = part.shape[:at] + part.shape[at + 1 :]
        same = others == parts[0].shape[:at] + parts[0].shape[at + 1 :]
        require(same, f"cat along dim {dim}: all other dims must be equal", *parts)
    total = sum(part.shape[at] for part in parts)
    return (*parts[0].shape[:at], total, *parts[0].shape[at + 1 :])


@op("aten.cat.default", "tensors:tensors dim:int -> out", shape=_cat_shape)
def _cat(tensors: Sequence[Operand], dim: int, out: Operand) -> Iterator[Dispatch]:
    offset: AnyInt = 0
    at = axis(dim, out.rank)
    for part in _nonempty(tensors):
        yield copy_strided(part, out, part.shape, part.strides, out.strides, out_offset=offset)
        offset += part.shape[at] * out.strides[at]


def _split_shapes(x: Operand, split_sizes: Sequence[AnyInt], dim: int) -> list[LiveShape]:
    at, sizes = axis(dim, x.rank), [settled(size) for size in split_sizes]
    fits = sum(sizes) == x.shape[at]
    require(fits, f"split dim {dim} into {sizes}: they must add up to {x.shape[at]}", x)
    return [(*x.shape[:at], size, *x.shape[at + 1 :]) for size in sizes]


@op("aten.split_with_sizes_copy.default", "self split_sizes:ints dim:int -> out:tensors", shape=_split_shapes)
def _split(x: Operand, split_sizes: Sequence[AnyInt], dim: int, *outputs: Operand) -> Iterator[Dispatch]:
    offset: AnyInt = 0
    at = axis(dim, x.rank)
    for out in outputs:
        yield copy_strided(x, out, out.shape, x.strides, out.strides, x_offset=offset)
        offset += out.shape[at] * x.strides[at]


def _unfold_shape(x: Operand, dimension: int, size: int, step: int) -> LiveShape:
    at = axis(dimension, max(x.rank, 1))
    length = x.shape[at] if x.rank else 1
    fits = 0 <= size <= length and step > 0
    windows = f"unfold dim {dimension} into windows of {size} by steps of {step}"
    require(fits, f"{windows}: a window must fit into the dim, a step be positive", x)
    if x.rank == 0:  # one element, which a window takes or leaves
        return (size,)
    return (*x.shape[:at], (length - size) // step + 1, *x.shape[at + 1 :], size)


@op("aten.unfold_copy.default", "self dimension:int size:int step:int -> out", shape=_unfold_shape)
def _unfold(x: Operand, dimension: int, size: int, step: int, out: Operand) -> Iterator[Dispatch]:
    at = axis(dimension, max(x.rank, 1))
    strides = tuple(s * step if d == at else s for d, s in enumerate(x.strides))
    along = x.strides[at] if x.rank else 1
    yield copy_strided(x, out, out.shape, (*strides, along), out.strides)


def _borders(x: Operand, pad: Sequence[AnyInt]) -> list[LivePair]:
    """(before, after) of each dim; `pad` names them from the last dim on. Negative borders crop."""
    paired = len(pad) % 2 == 0 and len(pad) <= 2 * x.rank
    require(paired, f"pad by {list(pad)}: it takes two borders per dim, from the last on", x)
    sizes = [settled(size) for size in pad]
    given = list(zip(sizes[::2], sizes[1::2], strict=True))
    return [(0, 0)] * (x.rank - len(given)) + given[::-1]


def _kept(x: Operand, borders: list[LivePair]) -> LiveShape:
    """What remains of x after cropping."""
    return tuple(
        size + min(before, 0) + min(after, 0) for size, (before, after) in zip(x.shape, borders, strict=True)
    )


def _padded_shape(x: Operand, pad: Sequence[AnyInt], value: AnyInt | float) -> LiveShape:
    borders = _borders(x, pad)
    require(min(_kept(x, borders), default=0) >= 0, f"pad by {list(pad)} crops more than there is", x)
    return tuple(size + sum(border) for size, border in zip(x.shape, borders, strict=True))


@op("aten.constant_pad_nd.default", "self pad:ints value:number -> out", shape=_padded_shape)
def constant_pad(
    x: Operand, pad: Sequence[AnyInt], value: AnyInt | float, out: Operand
) -> Iterator[Dispatch]:
    borders = _borders(x, pad)
    x_offset = sum(max(0, -before) * step for (before, _), step in zip(borders, x.strides, strict=True))
    out_offset = sum(max(0, before) * step for (before, _), step in zip(borders, out.strides, strict=True))
    yield fill(out, value)
    yield copy_strided(x, out, _kept(x, borders), x.strides, out.strides, x_offset, out_offset)


def shuffled_shape(x: Operand, upscale_factor: AnyInt) -> LiveShape:
    factor = int(upscale_factor)
    require(x.rank >= 3, "pixel_shuffle takes three dims or more", x)
    require(factor > 0, f"upscale_factor {factor} must be positive", x)
    *lead, channels, height, width = x.shape
    require(channels % factor**2 == 0, f"the channels must be a multiple of {factor**2}", x)
    return (*lead, channels // factor**2, height * factor, width * factor)


def shuffled_walk(x: Operand, out: Operand, upscale_factor: AnyInt) -> tuple[LiveShape, LiveShape]:
    """(sizes to iterate over the output, strides of x along them). A row of the output is a row of x and one
    of `factor` channels; columns likewise."""
    factor = int(upscale_factor)
    channels, (height, width) = numel(out.shape[:-2]), x.shape[-2:]
    channel, down, right, row, column = contiguous_strides((channels, factor, factor, height, width))
    return (channels, height, factor, width, factor), (channel, row, down, column, right)


@op("aten.pixel_shuffle.default", "self upscale_factor:int -> out", shape=shuffled_shape)
def _pixel_shuffle(x: Operand, upscale_factor: AnyInt, out: Operand) -> Iterator[Dispatch]:
    sizes, strides = shuffled_walk(x, out, upscale_factor)
    yield copy_strided(x, out, sizes, strides, contiguous_strides(sizes))


# Parts of a tensor written over ---------------------------------------------------------------------


@op("aten.slice_scatter.default", "self src dim:int start:int? end:int? step:int -> out", shape=same_shape)
def _slice_scatter(
    x: Operand,
    src: Operand,
    dim: int,
    start: AnyInt | None,
    end: AnyInt | None,
    step: int,
    out: Operand,
) -> Iterator[Dispatch]:
    expected = tuple(map(settled, _slice_shape(x, dim, start, end, step)))
    require(src.shape == expected, f"src must have the slice's shape {list(expected)}", x, src)
    at = axis(dim, x.rank)
    first, _ = slice_bounds(x.shape[at], start, end)
    strides = tuple(s * step if d == at else s for d, s in enumerate(out.strides))
    yield copy_elements(x, out)
    yield copy_strided(src, out, src.shape, src.strides, strides, out_offset=first * out.strides[at])


@op("aten.select_scatter.default", "self src dim:int index:int -> out", shape=same_shape)
def _select_scatter(x: Operand, src: Operand, dim: int, index: AnyInt, out: Operand) -> Iterator[Dispatch]:
    expected = _select_shape(x, dim, index)
    require(src.shape == expected, f"src must have the shape {list(expected)}", x, src)
    at = axis(dim, x.rank)
    position = index + x.shape[at] if index < 0 else index
    strides = out.strides[:at] + out.strides[at + 1 :]
    yield copy_elements(x, out)
    yield copy_strided(src, out, src.shape, src.strides, strides, out_offset=position * out.strides[at])


# Walks given by strides ------------------------------------------------------------------------------


def _strided_shape(x: Operand, size: Sequence[AnyInt], *_: object) -> LiveShape:
    return tuple(map(settled, size))


@op(
    "aten.as_strided_copy.default",
    "self size:ints stride:ints storage_offset:int? -> out",
    shape=_strided_shape,
)
def _as_strided(
    x: Operand, size: Sequence[AnyInt], stride: Sequence[AnyInt], offset: AnyInt | None, out: Operand
) -> Iterator[Dispatch]:
    strides, first = tuple(map(int, stride)), 0 if offset is None else int(offset)
    last = first + sum((length - 1) * step for length, step in zip(out.shape, strides, strict=True))
    require(out.numel == 0 or 0 <= first <= last < x.numel, "as_strided leaves the elements of its input", x)
    yield copy_strided(x, out, out.shape, strides, out.strides, x_offset=first)


def _diagonal_shape(x: Operand, offset: int, dim1: int, dim2: int) -> LiveShape:
    first, second = axis(dim1, x.rank), axis(dim2, x.rank)
    require(first != second, "a diagonal runs through two dims", x)
    rows, columns = x.shape[first], x.shape[second]
    length = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    return (*(size for d, size in enumerate(x.shape) if d not in (first, second)), length)


def _diagonal_walk(x: Operand, offset: int, dim1: int, dim2: int) -> tuple[LiveShape, AnyInt]:
    """Strides along a diagonal of x, which is the last dim, and where it begins."""
    first, second = axis(dim1, x.rank), axis(dim2, x.rank)
    others = tuple(step for d, step in enumerate(x.strides) if d not in (first, second))
    start = offset * x.strides[second] if offset >= 0 else -offset * x.strides[first]
    return (*others, x.strides[first] + x.strides[second]), start


@op("aten.diagonal_copy.default", "self offset:int dim1:int dim2:int -> out", shape=_diagonal_shape)
def _diagonal(x: Operand, offset: int, dim1: int, dim2: int, out: Operand) -> Iterator[Dispatch]:
    strides, start = _diagonal_walk(x, offset, dim1, dim2)
    yield copy_strided(x, out, out.shape, strides, out.strides, x_offset=start)


@op("aten.diagonal_scatter.default", "self src offset:int dim1:int dim2:int -> out", shape=same_shape)
def _diagonal_scatter(
    x: Operand, src: Operand, offset: int, dim1: int, dim2: int, out: Operand
) -> Iterator[Dispatch]:
    expected = _diagonal_shape(x, offset, dim1, dim2)
    require(src.shape == expected, f"src must have the diagonal's shape {list(expected)}", x, src)
    strides, start = _diagonal_walk(out, offset, dim1, dim2)
    yield copy_elements(x, out)
    yield copy_strided(src, out, src.shape, src.strides, strides, out_offset=start)


# Borders that repeat what is inside ------------------------------------------------------------------


def border(name: str, source: str) -> None:
    """An operator that pads the last dims, with the element at `source` of a position before 0 or from
    `size` on."""

    def shape(x: Operand, padding: Sequence[AnyInt]) -> LiveShape:
        return tuple(b + size + a for size, (b, a) in zip(x.shape, _borders(x, padding), strict=True))

    def dispatches(x: Operand, padding: Sequence[AnyInt], out: Operand) -> Iterator[Dispatch]:
        before = tuple(b for b, _ in _borders(x, padding))
        yield Dispatch(
            kernel("border", source=source),
            x=x,
            out=out,
            count=out.numel,
            rank=out.rank,
            shape=out.shape,
            x_shape=x.shape,
            x_strides=x.strides,
            before=before,
            threads=out.numel,
        )

    define(name, "self padding:ints -> out", shape=shape, compute=dispatches)


for _rank in (1, 2, 3):
    border(f"aten.reflection_pad{_rank}d.default", "size - 1 - abs(size - 1 - abs(position))")
    border(f"aten.replication_pad{_rank}d.default", "clamp(position, 0, size - 1)")
