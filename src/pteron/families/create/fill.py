"""Operators that make tensors from numbers, in the element type that the output has in the graph."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pteron.dtypes import DType
from pteron.ops import AnyInt, Dispatch, LiveInt, Operand, define, op, require, same_shape
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

_WHOLE_MAX = 1 << 31


def _is_whole(number: AnyInt | float) -> bool:
    """Whether 32 bits hold the number exactly. A live integer is held to that when it is packed."""
    if isinstance(number, LiveInt):
        return True
    return math.isfinite(number) and number == int(number) and -_WHOLE_MAX <= number < _WHOLE_MAX


def fill(out: Operand, first: AnyInt | float, step: AnyInt | float = 0) -> Dispatch:
    """out[i] = first + i · step, in the element type of out."""
    if out.dtype is DType.BOOL:
        first = int(first != 0)
    elif not out.dtype.is_float and isinstance(first, float):
        require(math.isfinite(first), f"integers cannot be {first}", out)
        first = int(first)  # PyTorch drops the fraction too
    whole = _is_whole(first) and _is_whole(step)
    return Dispatch(
        kernel("fill"),
        IS_WHOLE=whole,
        out=out,
        count=out.numel,
        integer_first=_integer(first) if whole else 0,
        integer_step=_integer(step) if whole else 0,
        first=0.0 if whole else float(first),
        step=0.0 if whole else float(step),
        threads=out.numel,
    )


def _integer(number: AnyInt | float) -> AnyInt:
    return number if isinstance(number, LiveInt) else int(number)


# One number -------------------------------------------------------------------------------------

_OPTIONS = "dtype:ignored layout:ignored device:ignored pin_memory:ignored"


_LIKE = f"{_OPTIONS} memory_format:ignored"


def _sizes(size: Sequence[AnyInt], *_: object) -> Sequence[AnyInt]:
    return size


def _numbered(first: object, number: AnyInt | float, out: Operand) -> Iterator[Dispatch]:
    yield fill(out, number)


def _scalar_tensor(number: AnyInt | float, out: Operand) -> Iterator[Dispatch]:
    yield fill(out, number)


define("aten.full.default", f"size:ints fill_value:number {_OPTIONS} -> out", shape=_sizes, compute=_numbered)
define(
    "aten.full_like.default", f"self fill_value:number {_LIKE} -> out", shape=same_shape, compute=_numbered
)
define(
    "aten.scalar_tensor.default", f"s:number {_OPTIONS} -> out", shape=lambda *_: (), compute=_scalar_tensor
)


def constant(name: str, number: int) -> None:
    """The operators `aten.NAME` and `aten.NAME_like`, which fill a tensor with one fixed number."""

    def dispatches(like: object, out: Operand) -> Iterator[Dispatch]:
        yield fill(out, number)

    define(f"aten.{name}.default", f"size:ints {_OPTIONS} -> out", shape=_sizes, compute=dispatches)
    define(f"aten.{name}_like.default", f"self {_LIKE} -> out", shape=same_shape, compute=dispatches)


constant("ones", 1)
constant("zeros", 0)


# Even steps -------------------------------------------------------------------------------------


def _arange_shape(*numbers: AnyInt | float) -> tuple[AnyInt, ...]:
    start, end, step = (_integer(number) if _is_whole(number) else number for number in numbers[:3])
    require(step != 0, "arange by steps of zero")
    if isinstance(start, float) or isinstance(end, float) or isinstance(step, float):
        length = (float(end) - float(start)) / float(step)
        require(math.isfinite(length), f"arange from {start} to {end} by {step} does not end")
        count: AnyInt = math.ceil(length)
    else:
        count = -((start - end) // step)
    require(count >= 0, f"arange from {start} to {end} by {step} runs the wrong way")
    return (count,)


@op("aten.arange.start_step", f"start:number end:number step:number {_OPTIONS} -> out", shape=_arange_shape)
def arange(start: AnyInt | float, end: object, step: AnyInt | float, out: Operand) -> Iterator[Dispatch]:
    yield fill(out, start, step)
