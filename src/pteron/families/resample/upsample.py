"""Upsampling: planes of another size, by the nearest element or by interpolation between four of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pteron.ops import AnyInt, Dispatch, LiveShape, Operand, numel, op, require, settled
from pteron.wgsl import Kernels

kernel = Kernels(__name__)
_FACTOR_MAX = 1 << 16


def _resized(
    x: Operand, output_size: Sequence[AnyInt] | None, scale_factors: Sequence[float] | None
) -> LiveShape:
    """The output's shape, by a size or by factors."""
    require(x.rank == 4 and x.dtype.is_float, "upsampling takes four dims of floats", x)
    has_one = (output_size is None) != (scale_factors is None)
    require(has_one, "either output_size or scale_factors is given", x)
    given = [*(output_size or ()), *(scale_factors or ())]
    require(len(given) == 2, f"planes have two dims, {given} must too", x)
    if scale_factors is None:
        height, width = map(settled, output_size or ())
    else:
        height, width = map(_scaled, x.shape[2:], scale_factors)
    filled = all(size > 0 for size in (*x.shape[1:], height, width))
    require(filled, f"upsampling to [{height}, {width}] takes planes and channels that are not empty", x)
    return (*x.shape[:2], height, width)


def _scaled(size: AnyInt, factor: float) -> AnyInt:
    """A size by a factor, rounded down. Only a fraction pins a live size."""
    if factor.is_integer() and 0 <= factor < _FACTOR_MAX:
        return size * int(factor)
    scaled = float(size) * factor
    require(math.isfinite(scaled), f"{size} by {factor} must be finite")
    return int(scaled)


def _ratio(size: AnyInt, result: AnyInt) -> float:
    """Only what is no multiple pins live sizes."""
    times = result // size
    return 1.0 / times if isinstance(times, int) and times * size == result else int(size) / int(result)


def _steps(x: Operand, out: Operand, scale_factors: Sequence[float] | None) -> tuple[float, float]:
    """Elements of x per element of the output: by the factors if they are given, since sizes are rounded.
    Equal sizes are a copy."""
    ratios = zip(x.shape[2:], out.shape[2:], scale_factors or (None, None), strict=True)
    height, width = (
        1.0 if size == result else _ratio(size, result) if factor is None else 1.0 / factor
        for size, result, factor in ratios
    )
    return height, width


def _resample(x: Operand, out: Operand, steps: tuple[float, float], **forms: bool) -> Dispatch:
    (height, width), (out_height, out_width) = x.shape[2:], out.shape[2:]
    return Dispatch(
        kernel("upsample", **forms),
        x=x,
        out=out,
        planes=numel(x.shape[:2]),
        height=height,
        width=width,
        out_height=out_height,
        out_width=out_width,
        step_height=steps[0],
        step_width=steps[1],
        threads=out.numel,
    )


@op("aten.upsample_nearest2d.vec", "input output_size:ints? scale_factors:floats? -> out", shape=_resized)
def nearest(
    x: Operand, output_size: object, scale_factors: Sequence[float] | None, out: Operand
) -> Iterator[Dispatch]:
    # Twice the size repeats every element, whatever the factor.
    sizes = zip(x.shape[2:], out.shape[2:], _steps(x, out, scale_factors), strict=True)
    height, width = (0.5 if result == 2 * size else step for size, result, step in sizes)
    yield _resample(x, out, (height, width), IS_NEAREST=True)


@op(
    "aten.upsample_bilinear2d.vec",
    "input output_size:ints? align_corners:bool scale_factors:floats? -> out",
    shape=lambda x, output_size, _, scale_factors: _resized(x, output_size, scale_factors),
)
def bilinear(
    x: Operand, output_size: object, align_corners: bool, scale_factors: Sequence[float] | None, out: Operand
) -> Iterator[Dispatch]:
    if not align_corners:
        steps = _steps(x, out, scale_factors)
        yield _resample(x, out, steps)
        return
    # Steps from the first element to the last.
    sizes = zip(x.shape[2:], out.shape[2:], strict=True)
    height, width = (int(size - 1) / int(result - 1) if result > 1 else 0.0 for size, result in sizes)
    yield _resample(x, out, (height, width), ALIGNS_CORNERS=True)
