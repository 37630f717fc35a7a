"""One strided copy serves every operator that moves elements without computing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pteron.dtypes import DType
from pteron.ops import AnyInt, Dispatch, LiveShape, Operand, numel
from pteron.ops.live import affine
from pteron.ops.operand import changes_words, wrapped
from pteron.ops.shapes import collapse
from pteron.wgsl import Kernel, Kernels

kernel = Kernels(__name__)
_PLAIN = kernel("copy", convert="R(value)")  # R is the type of what is bound


def copy_strided(
    x: Operand,
    out: Operand,
    shape: LiveShape,
    x_strides: LiveShape,
    out_strides: LiveShape,
    x_offset: AnyInt = 0,
    out_offset: AnyInt = 0,
) -> Dispatch:
    """Copy `shape` elements between two walks over memory, converting the element type."""
    count = numel(shape)
    shape, (x_strides, out_strides) = collapse(shape, x_strides, out_strides)
    return Dispatch(
        _conversion(x.dtype, out.dtype),
        x=x,
        out=out,
        count=count,
        rank=len(shape),
        x_offset=x_offset,
        out_offset=out_offset,
        shape=shape,
        x_strides=x_strides,
        out_strides=out_strides,
        threads=count,
    )


def copy_elements(x: Operand, out: Operand) -> Dispatch:
    return copy_strided(x, out, (x.numel,), (1,), (1,))


def moves_nothing(dispatch: Dispatch) -> bool:
    """Whether a dispatch surely copies all of a tensor to another, each element to its own place, unchanged.
    Takes no decision."""
    if dispatch.kernel != _PLAIN.launched(dispatch.bindings):
        return False
    given: Mapping[str, Any] = dispatch.parameters
    x, out = dispatch.bindings["x"], dispatch.bindings["out"]
    assert isinstance(out, Operand)
    starts = _is_surely(given["x_offset"], 0) and _is_surely(given["out_offset"], 0)
    strides = [*given["x_strides"], *given["out_strides"]]
    in_order = len(strides) in (0, 2) and all(_is_surely(stride, 1) for stride in strides)
    return starts and in_order and _is_surely(given["count"], out.numel) and x.storage is out.storage


def _is_surely(value: AnyInt, expected: AnyInt) -> bool:
    return affine(value) == affine(expected)


def _conversion(source: DType, result: DType) -> Kernel:
    if not changes_words(source, result):
        return _PLAIN
    is_bool = result is DType.BOOL
    return kernel("copy", convert=f"R({'!(value == X())' if is_bool else wrapped('i32(value)', result)})")
