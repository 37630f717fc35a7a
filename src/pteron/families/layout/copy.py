"""One strided copy serves every operator that moves elements without computing."""

from __future__ import annotations

from pteron.dtypes import DType
from pteron.ops import AnyInt, Dispatch, LiveShape, Operand, numel
from pteron.ops.operand import changes_words, wrapped
from pteron.ops.shapes import collapse
from pteron.wgsl import Kernel, Kernels

kernel = Kernels(__name__)
_PLAIN = kernel("copy")  # its elements may change their type, by what is bound to it


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
    """Whether a dispatch copies all of a tensor to another, each element to its own place, unchanged."""
    if dispatch.kernel != _PLAIN:
        return False
    x, out, given = dispatch.bindings["x"], dispatch.bindings["out"], dispatch.parameters
    assert isinstance(out, Operand)
    offsets = (given["x_offset"], given["out_offset"])
    starts = all(isinstance(offset, int) and offset == 0 for offset in offsets)  # live ones are not asked
    in_order = given["x_strides"] == given["out_strides"] and given["x_strides"] in ((), (1,))
    return starts and in_order and given["count"] == out.numel and x.storage is out.storage


def _conversion(source: DType, result: DType) -> Kernel:
    if not changes_words(source, result):
        return _PLAIN
    is_bool = result is DType.BOOL
    return kernel("copy", convert=f"R({'!(value == X())' if is_bool else wrapped('i32(value)', result)})")
