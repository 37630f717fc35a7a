"""Average pooling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pteron.families.pool.planes import covers_plane, halves, is_cut, plane_parameters, pooled_shape
from pteron.families.reduce.fold import SUM, fold, strided_rows
from pteron.graph import Shape
from pteron.graph.values import numel
from pteron.ops import Dispatch, Operand, Scratch, Target, op, require
from pteron.ops.window import Window
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


def _average_shape(
    x: Operand,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    *_: object,
) -> Shape:
    return pooled_shape(x, Window.of(kernel_size, stride, padding), ceil_mode)


@op(
    "aten.avg_pool2d.default",
    "self kernel_size:ints stride:ints padding:ints ceil_mode:bool count_include_pad:bool "
    "divisor_override:int? -> out",
    shape=_average_shape,
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
    *,
    target: Target,
) -> Iterator[Dispatch]:
    window = Window.of(kernel_size, stride, padding)
    require(divisor_override != 0, "divisor_override must not be zero", x)
    divisor = None if divisor_override is None else float(divisor_override)
    if covers_plane(x, window):
        planes = strided_rows(x, numel(x.shape[:-2]), numel(x.shape[-2:]))
        by = "f32(params.count)" if divisor is None else str(divisor)
        yield from fold(planes, out, target, SUM, finish=f"total / {by}")
        return
    counted = "padded" if count_include_pad else "inside"
    if not is_cut(window):
        yield _averages(x, x.shape, out, out.shape, window, counted, divisor)
        return
    # What a window counts is a product of what it counts along each dim: so is an average.
    along_width, along_height = halves(window)
    shape = (*x.shape[:-1], out.shape[-1])
    rows = Scratch(numel(shape))
    yield _averages(x, x.shape, rows, shape, along_width, counted, None if divisor is None else 1.0)
    yield _averages(rows, shape, out, out.shape, along_height, counted, divisor)


def _averages(
    x: Operand | Scratch,
    shape: Shape,
    out: Operand | Scratch,
    out_shape: Shape,
    window: Window,
    counted: str,
    divisor: float | None,
) -> Dispatch:
    """One average per place of the window, over what is `counted` or by a divisor."""
    sizes = plane_parameters(shape, out_shape, window)
    undilated = {name: size for name, size in sizes.items() if not name.startswith("dilation")}
    return Dispatch(
        kernel("average_pool", divisor=f"f32({counted})" if divisor is None else "params.divisor"),
        x=x,
        out=out,
        **undilated,
        divisor=divisor or 0.0,
        threads=numel(out_shape),
    )
