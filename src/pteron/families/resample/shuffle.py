"""Pixel shuffle: channels become elements between those of a plane."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.families.layout.copy import copy_strided
from pteron.graph import Shape
from pteron.graph.values import numel
from pteron.ops import AnyInt, Dispatch, Operand, op, require
from pteron.ops.operand import contiguous_strides


def shuffled_shape(x: Operand, upscale_factor: AnyInt) -> Shape:
    factor = int(upscale_factor)
    require(x.rank >= 3, "pixel_shuffle takes three dims or more", x)
    require(factor > 0, f"upscale_factor {factor} must be positive", x)
    *lead, channels, height, width = x.shape
    require(channels % factor**2 == 0, f"the channels must be a multiple of {factor**2}", x)
    return (*lead, channels // factor**2, height * factor, width * factor)


def shuffled_walk(x: Operand, out: Operand, upscale_factor: AnyInt) -> tuple[Shape, Shape]:
    """The output, element by element, as sizes to go over and the strides of x along them: an output's row
    and column are each a place of the input and one of `factor` channels of it."""
    factor = int(upscale_factor)
    channels, (height, width) = numel(out.shape[:-2]), x.shape[-2:]
    channel, down, right, row, column = contiguous_strides((channels, factor, factor, height, width))
    return (channels, height, factor, width, factor), (channel, row, down, column, right)


@op("aten.pixel_shuffle.default", "self upscale_factor:int -> out", shape=shuffled_shape)
def pixel_shuffle(x: Operand, upscale_factor: AnyInt, out: Operand) -> Iterator[Dispatch]:
    sizes, strides = shuffled_walk(x, out, upscale_factor)
    yield copy_strided(x, out, sizes, strides, contiguous_strides(sizes))
