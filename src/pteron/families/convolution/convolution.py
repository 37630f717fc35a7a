"""Convolutions: over one dim or two, grouped, dilated, transposed, with bounds on their outputs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from pteron.families.convolution.geometry import geometry, out_shape
from pteron.families.convolution.kernels import Convolution
from pteron.families.elementwise.binary import apply_binary
from pteron.graph import Shape
from pteron.ops import OPERATORS, Dispatch, Operand, Target, define, op, require
from pteron.ops.shapes import broadcast

_ARGUMENTS = (
    "input weight bias? stride:ints padding:ints dilation:ints transposed:bool output_padding:ints groups:int"
)


def _shape(x: Operand, weight: Operand, bias: Operand | None, *rest: Any) -> Shape:
    return out_shape(geometry(x, weight, *rest[:6]), x.rank)


_ACTIVATIONS = {"none": None, "hardswish": "value * at_most(at_least(value + 3.0, 0.0), 6.0) / 6.0"}


def _finished_shape(x: Operand, weight: Operand, bias: Operand | None, *rest: Any) -> Shape:
    shape, addend = _shape(x, weight, bias, *rest), rest[-2]
    return shape if addend is None else broadcast(shape, addend.shape)


@op(
    "pteron.convolution",
    f"{_ARGUMENTS} output_min:number? output_max:number? addend? activation:str -> out",
    shape=_finished_shape,
)
def finished_convolution(
    x: Operand, weight: Operand, bias: Operand | None, *arguments: Any, target: Target
) -> Iterator[Dispatch]:
    """A convolution and what follows it: an addend, bounds, an activation."""
    *window, output_min, output_max, addend, activation, out = arguments
    sizes = geometry(x, weight, *window)
    fits = bias is None or bias.numel == sizes.rows
    require(fits, f"bias must have one value for each of the {sizes.rows} channels", weight, bias)
    low = -math.inf if output_min is None else float(output_min)
    high = math.inf if output_max is None else float(output_max)
    shape = out_shape(sizes, x.rank)
    if shape == out.shape:
        convolution = Convolution(sizes, x, weight, bias, out, low, high, addend, _ACTIVATIONS[activation])
        yield from convolution.dispatches(target)
        return
    # At this call the addend is larger: the convolution broadcasts along it.
    made = out.scratch(shape)
    yield from Convolution(sizes, x, weight, bias, made, -math.inf, math.inf).dispatches(target)
    following: list[tuple[str, tuple[float | None, ...]]] = []
    if output_min is not None or output_max is not None:
        following.append(("aten.clamp.default", (output_min, output_max)))
    if activation != "none":
        following.append((f"aten.{activation}.default", ()))
    places = [*(out.scratch() for _ in following), out]
    yield from apply_binary("a + b", made, addend, places[0])
    for (name, bounds), source, to in zip(following, places, places[1:], strict=False):
        yield from OPERATORS[name].compute(source, *bounds, to)


def _clamped(*arguments: Any, target: Target) -> Iterator[Dispatch]:
    *inputs, out = arguments
    yield from finished_convolution(*inputs, None, "none", out, target=target)


def _plain(*arguments: Any, target: Target) -> Iterator[Dispatch]:
    *inputs, out = arguments
    yield from finished_convolution(*inputs, None, None, None, "none", out, target=target)


define(
    "et_vk.conv_with_clamp.default",
    f"{_ARGUMENTS} output_min:number? output_max:number? -> out",
    shape=_shape,
    compute=_clamped,
)
define("aten.convolution.default", f"{_ARGUMENTS} -> out", shape=_shape, compute=_plain)
