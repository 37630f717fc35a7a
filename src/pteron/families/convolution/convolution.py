"""Convolutions: over one dim or two, grouped, dilated, transposed, with bounds on their outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from pteron.families.convolution.geometry import geometry, out_shape, volume_shape
from pteron.families.convolution.kernels import Convolution
from pteron.families.create.fill import fill
from pteron.families.elementwise.activations import ACTIVATIONS
from pteron.families.elementwise.binary import apply_binary
from pteron.families.elementwise.unary import apply_unary
from pteron.families.layout.copy import copy_strided
from pteron.ops import OPERATORS, AnyInt, Dispatch, LiveShape, Operand, Target, define, numel, op, require
from pteron.ops.shapes import broadcast

_ARGUMENTS = (
    "input weight bias? stride:ints padding:ints dilation:ints transposed:bool output_padding:ints groups:int"
)


def _shape(x: Operand, weight: Operand, bias: Operand | None, *rest: Any) -> LiveShape:
    if x.rank == 5:
        return volume_shape(x, weight, *rest[:6])
    return out_shape(geometry(x, weight, *rest[:6]), x.rank)


def _finished_shape(x: Operand, weight: Operand, bias: Operand | None, *rest: Any) -> LiveShape:
    volume, factors, addend = x.rank == 5, rest[7], rest[-2]
    if factors is not None:
        x = x.scratch(broadcast(x.shape, factors.shape))
    shape = _shape(x, weight, bias, *rest) if volume else out_shape(geometry(x, weight, *rest[:7]), x.rank)
    return shape if addend is None else broadcast(shape, addend.shape)


@op(
    "pteron.convolution",
    f"{_ARGUMENTS} excess:ints factors? output_min:number? output_max:number? addend? activation:str -> out",
    shape=_finished_shape,
)
def finished_convolution(
    x: Operand, weight: Operand, bias: Operand | None, *arguments: Any, target: Target
) -> Iterator[Dispatch]:
    """A convolution and what follows it: an addend, bounds, an activation. Along one dim or two, the padding
    at the end may be larger or smaller than that at the start, by `excess`, and its input may be multiplied
    by factors first, usually one for every plane."""
    *window, excess, factors, output_min, output_max, addend, activation, out = arguments
    if x.rank == 5 and addend is None:
        finished: list[Any] = [*window, output_min, output_max, activation, out, target]
        yield from _over_volumes(x, weight, bias, *finished)
        return
    if x.rank == 5:
        made = out.scratch(_shape(x, weight, bias, *window))
        plain: list[Any] = [*window, None, None, "none", made, target]
        yield from _over_volumes(x, weight, bias, *plain)
        yield from _follow(made, addend, output_min, output_max, activation, out)
        return
    if factors is not None and (factors.shape[:2] != x.shape[:2] or factors.numel != x.shape[0] * x.shape[1]):
        product = x.scratch(broadcast(x.shape, factors.shape))
        yield from apply_binary("a * b", x, factors, product, target=target)
        x, factors = product, None
    given: list[Any] = [*window, excess]
    sizes = geometry(x, weight, *given)
    fits = bias is None or bias.numel == sizes.rows
    require(fits, f"bias must have one value for each of the {sizes.rows} channels", weight, bias)
    low = -math.inf if output_min is None else float(output_min)
    high = math.inf if output_max is None else float(output_max)
    shape = out_shape(sizes, x.rank)
    if shape == out.shape:
        whole = Convolution(sizes, x, weight, bias, out, low, high, addend, factors, activation)
        yield from whole.dispatches(target)
        return
    # At this call the addend is larger: the convolution broadcasts along it.
    made = out.scratch(shape)
    plain_sums = Convolution(sizes, x, weight, bias, made, -math.inf, math.inf, factors=factors)
    yield from plain_sums.dispatches(target)
    yield from _follow(made, addend, output_min, output_max, activation, out)


def _follow(
    made: Operand,
    addend: Operand,
    output_min: float | None,
    output_max: float | None,
    activation: str,
    out: Operand,
) -> Iterator[Dispatch]:
    """What follows a convolution, as dispatches of its own."""
    following: list[Callable[[Operand, Operand], Iterator[Dispatch]]] = []
    if output_min is not None or output_max is not None:
        clamp = OPERATORS["aten.clamp.default"].compute
        following.append(lambda source, to: clamp(source, output_min, output_max, to))
    if activation != "none":
        following.append(partial(apply_unary, ACTIVATIONS[activation]))
    places = [*(out.scratch() for _ in following), out]
    yield from apply_binary("a + b", made, addend, places[0])
    for step, source, to in zip(following, places, places[1:], strict=False):
        yield from step(source, to)


def _clamped(*arguments: Any, target: Target) -> Iterator[Dispatch]:
    *inputs, output_min, output_max, out = arguments
    bounds = output_min, output_max
    yield from finished_convolution(*inputs, (), None, *bounds, None, "none", out, target=target)


def _plain(*arguments: Any, target: Target) -> Iterator[Dispatch]:
    *inputs, out = arguments
    yield from finished_convolution(*inputs, (), None, None, None, None, "none", out, target=target)


def _over_volumes(
    x: Operand,
    weight: Operand,
    bias: Operand | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_min: float | None,
    output_max: float | None,
    activation: str,
    out: Operand,
    target: Target,
) -> Iterator[Dispatch]:
    """A convolution over planes whose channels are all depths that a window reaches."""
    batch, channels = x.shape[:2]
    taps, depths = weight.shape[2], out.shape[2]
    unfolded = x.scratch((batch * depths, channels * taps, *x.shape[3:]))
    yield from _unfold(x, unfolded, taps, depths, stride[0], padding[0], dilation[0], transposed)
    if transposed:
        order = (0, 2, 1, 3, 4)
        moved = weight.scratch(tuple(weight.shape[d] for d in order))
        strides = tuple(weight.strides[d] for d in order)
        yield copy_strided(weight, moved, moved.shape, strides, moved.strides)
        flat = moved.reshaped((channels * taps, weight.shape[1], *weight.shape[3:]))
    else:
        flat = weight.reshaped((weight.shape[0], weight.shape[1] * taps, *weight.shape[3:]))
    numbers = (stride[1:], padding[1:], dilation[1:], transposed, output_padding[1:], groups)
    planes = out.scratch(_shape(unfolded, flat, bias, *numbers))
    rest: list[Any] = [(), None, output_min, output_max, None, activation]
    yield from finished_convolution(unfolded, flat, bias, *numbers, *rest, planes, target=target)
    filters, area = out.shape[1], numel(out.shape[3:])
    yield copy_strided(
        planes,
        out,
        (batch, filters, depths, area),
        (depths * filters * area, area, filters * area, 1),
        (filters * depths * area, depths * area, area, 1),
    )


def _unfold(
    x: Operand,
    unfolded: Operand,
    taps: AnyInt,
    depths: AnyInt,
    stride: int,
    padding: int,
    dilation: int,
    transposed: bool,
) -> Iterator[Dispatch]:
    """For each of the output's depths, the planes of x that its window reaches; zeros beyond x."""
    batch, channels, depth = x.shape[:3]
    area = numel(x.shape[3:])
    yield fill(unfolded, 0)
    for tap in range(taps):
        shift = tap * dilation - padding
        # Depths `at` of the input, and `to` of the output, that meet at this tap.
        if transposed:
            pairs = [(at, at * stride + shift) for at in range(depth)]
            steps = (1, stride)
        else:
            pairs = [(to * stride + shift, to) for to in range(depths)]
            steps = (stride, 1)
        inside = [(at, to) for at, to in pairs if 0 <= at < depth and 0 <= to < depths]
        if inside and x.numel:
            at, to = inside[0]
            image = channels * taps * area
            yield copy_strided(
                x,
                unfolded,
                (batch, len(inside), channels, area),
                (channels * depth * area, steps[0] * area, depth * area, 1),
                (depths * image, steps[1] * image, taps * area, 1),
                x_offset=at * area,
                out_offset=(to * channels * taps + tap) * area,
            )


define(
    "et_vk.conv_with_clamp.default",
    f"{_ARGUMENTS} output_min:number? output_max:number? -> out",
    shape=_shape,
    compute=_clamped,
)
define("aten.convolution.default", f"{_ARGUMENTS} -> out", shape=_shape, compute=_plain)
