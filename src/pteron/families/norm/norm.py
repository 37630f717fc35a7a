"""Normalisation of rows: RMS norm, layer norm and group norm. For rows too long for their lanes, one launch
reduces each row to its statistics, and another writes the elements."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from pteron.families.create.fill import fill
from pteron.families.linear.product import ROWS_FEW
from pteron.families.reduce.fold import SUM, fold, strided_rows
from pteron.ops import AnyInt, Dispatch, LiveShape, Operand, Scratch, Target, numel, op, require, same_shape
from pteron.ops.row_layout import fits_registers, register_rows, row_groups, row_layout, row_parts
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

REGISTERS_MIN = 256  # elements of a row, enough for every lane of two subgroups


@op("et_vk.rms_norm.default", "x weight eps:float -> out", shape=same_shape)
def rms_norm(x: Operand, weight: Operand, eps: float, out: Operand, *, target: Target) -> Iterator[Dispatch]:
    fits = x.rank > 0 and weight.shape == x.shape[-1:]
    require(fits, "weight must have the size of x's last dim", x, weight)
    length = x.shape[-1]
    rows = x.numel // length if length else 0
    yield from _launches(x, rows, length, eps, target, weight=weight, out=out)


def _launches(
    x: Operand, rows: AnyInt, length: AnyInt, eps: float, target: Target, **operands: Any
) -> Iterator[Dispatch]:
    """A norm of `rows` rows of `length` elements, by the kernel that suits them (lib/norm.wgsl)."""
    layout = row_layout(target, rows, length)
    sizes: dict[str, Any] = {"rows": rows, "length": length, "eps": eps}
    is_plain = "BY_GROUPS" not in operands and 0 <= eps <= 1
    if row_parts(layout, length)[0] > 1:
        elements, squares = strided_rows(x, rows, length), Scratch(rows)
        centers = Scratch(rows) if "mean" in operands else None
        if centers:
            yield from fold(elements, centers, target, SUM, finish="total / f32(params.count)")
            taken = "square(value - of_row[row])"
            yield from fold(elements, squares, target, SUM, take=taken, of_row=centers)
        else:
            yield from fold(elements, squares, target, SUM, take="square(value)")
        written: dict[str, Any] = {"centers": centers, "squares": squares, "threads": x.numel}
        yield Dispatch(kernel("norm_write"), x=x, **operands, **sizes, **written)
    elif is_plain and length >= REGISTERS_MIN and fits_registers(target, length):
        is_few = "mean" not in operands and rows <= ROWS_FEW  # lib/planes_int8.wgsl adds up in the same order
        held = register_rows(target, rows, length, 2 if is_few else 1, in_one_order=is_few)
        names = {"weight": "gain", "bias": "shift", "out": "normed"}
        named = {names.get(name, name): each for name, each in operands.items()}
        groups = row_groups(target, held, rows)
        yield Dispatch(kernel("norm_registers"), **held, **named, EPS=eps, x=x, rows=rows, groups=groups)
    else:
        groups = row_groups(target, layout, rows)
        yield Dispatch(kernel("norm"), **layout, x=x, **operands, **sizes, groups=groups)


def _layer_norm_shapes(
    x: Operand, normalized_shape: Sequence[AnyInt], *_: object
) -> tuple[LiveShape, LiveShape, LiveShape]:
    kept = x.rank - len(normalized_shape)
    fits = kept >= 0 and x.shape[kept:] == tuple(normalized_shape)
    require(fits, f"normalized_shape {list(normalized_shape)} must be x's last dims", x)
    row = x.shape[:kept] + (1,) * len(normalized_shape)
    return x.shape, row, row


@op(
    "aten.native_layer_norm.default",
    "input normalized_shape:ints weight? bias? eps:float -> out mean rstd",
    shape=_layer_norm_shapes,
)
def layer_norm(
    x: Operand, normalized_shape: Sequence[AnyInt], *arguments: Any, target: Target
) -> Iterator[Dispatch]:
    length = numel(tuple(int(size) for size in normalized_shape))
    for parameter in arguments[:2]:
        fits = parameter is None or parameter.numel == length
        require(fits, "weight and bias must fit the row", x, parameter)
    yield from _normalise(x, arguments, target, length=length)


def _group_norm_shapes(x: Operand, *arguments: Any) -> tuple[LiveShape, LiveShape, LiveShape]:
    require(x.rank >= 2, "group norm takes two dims or more", x)
    sizes, group = tuple(arguments[2:5]), arguments[5]
    found = (*x.shape[:2], numel(x.shape[2:]))
    require(sizes == found, f"N, C and HxW are {list(sizes)}, the input has {list(found)}", x)
    divides = group > 0 and x.shape[1] % group == 0
    require(divides, f"{x.shape[1]} channels must be a multiple of {group} groups", x)
    return x.shape, (x.shape[0], group), (x.shape[0], group)


@op(
    "aten.native_group_norm.default",
    "input weight? bias? N:int C:int HxW:int group:int eps:float -> out mean rstd",
    shape=_group_norm_shapes,
)
def group_norm(x: Operand, *arguments: Any, target: Target) -> Iterator[Dispatch]:
    weight, bias, _, _, _, group, *others = arguments
    for parameter in (weight, bias):
        fits = parameter is None or parameter.shape == (x.shape[1],)
        require(fits, "weight and bias must have a number per channel", x, parameter)
    size = numel(x.shape[2:])
    length = x.shape[1] // group * size
    rest = {"length": length, "cycle": int(group), "plane": size}
    yield from _normalise(x, (weight, bias, *others), target, **rest)


def _normalise(
    x: Operand,
    arguments: Sequence[Any],
    target: Target,
    *,
    length: AnyInt,
    cycle: AnyInt = 1,
    plane: AnyInt = 1,
) -> Iterator[Dispatch]:
    """Rows of `length` elements; `plane` elements share a channel, `cycle` rows have all channels. The
    arguments are weight, bias, eps and the outputs."""
    weight, bias, eps, out, mean, rstd = arguments
    if length == 0:  # the mean of no elements is 0 here, as in PyTorch
        yield fill(mean, 0.0)
        yield fill(rstd, math.nan)
        return
    rows = mean.numel
    channels = {"BY_GROUPS": True, "cycle": cycle, "plane": plane} if cycle > 1 or plane > 1 else {}
    operands = {"weight": weight, "bias": bias, "out": out, "mean": mean, "rstd": rstd, **channels}
    yield from _launches(x, rows, length, eps, target, **operands)


def _batch_norm_shapes(x: Operand, *_: object) -> tuple[LiveShape, LiveShape, LiveShape]:
    require(x.rank >= 2, "batch norm takes two dims or more", x)
    return x.shape, (0,), (0,)  # the statistics of this batch, which are not computed


@op(
    "aten._native_batch_norm_legit_no_training.default",
    "input weight? bias? running_mean running_var momentum:ignored eps:float -> out save_mean save_invstd",
    shape=_batch_norm_shapes,
)
def batch_norm(
    x: Operand, weight: Operand | None, bias: Operand | None, *arguments: Any
) -> Iterator[Dispatch]:
    running_mean, running_var, eps, out, *_ = arguments
    channels = x.shape[1]
    for parameter in (weight, bias, running_mean, running_var):
        fits = parameter is None or parameter.shape == (channels,)
        require(fits, "weight, bias and statistics must have a number per channel", x, parameter)
    yield Dispatch(
        kernel("batch_norm"),
        x=x,
        weight=weight,
        bias=bias,
        mean=running_mean,
        variance=running_var,
        out=out,
        count=x.numel,
        channels=channels,
        plane=numel(x.shape[2:]),
        eps=eps,
        threads=x.numel,
    )
