"""Pixel shuffle: channels become elements between those of a plane."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.families.layout.copy import copy_strided
from pteron.graph import Shape
from pteron.graph.values import numel
from pteron.ops import Dispatch, Operand, op, require
from pteron.ops.operand import contiguous_strides


def _shuffled(x: Operand, upscale_factor: int) -> Shape:
    require(x.rank >= 3, "pixel_shuffle takes three dims or more", x)
    require(upscale_factor > 0, f"upscale_factor {upscale_factor} must be positive", x)
    *lead, channels, height, width = x.shape
    square = upscale_factor**2
    require(channels % square == 0, f"the channels must be a multiple of {square}", x)
    return (*lead, channels // square, height * upscale_factor, width * upscale_factor)


@op("aten.pixel_shuffle.default", "self upscale_factor:int -> out", shape=_shuffled)
def pixel_shuffle(x: Operand, upscale_factor: int, out: Operand) -> Iterator[Dispatch]:
    factor = int(upscale_factor)
    channels, (height, width) = numel(out.shape[:-2]), x.shape[-2:]
    channel, down, right, row, column = contiguous_strides((channels, factor, factor, height, width))
    walk = (channels, height, factor, width, factor)
    yield copy_strided(x, out, walk, (channel, row, down, column, right), contiguous_strides(walk))
