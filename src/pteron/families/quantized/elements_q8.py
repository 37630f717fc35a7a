"""Element-wise operators on int8 tensors: dequantised, combined in f32, quantised again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pteron.dtypes import DType
from pteron.families.layout.rearrange import shuffled_shape, shuffled_walk
from pteron.families.quantized.affine import reciprocal
from pteron.ops import AnyInt, Dispatch, LiveShape, Operand, op, require, same_shape
from pteron.ops.shapes import broadcast, broadcast_strides, collapse
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

RANK_MAX = 8  # separate dims that the kernel walks


def require_int8(*tensors: Operand) -> None:
    """Raise unless all tensors are int8."""
    require(all(tensor.dtype is DType.I8 for tensor in tensors), "all tensors must be i8", *tensors)


def _elements(
    a: Operand,
    out: Operand,
    walk: tuple[LiveShape, LiveShape, LiveShape],
    inverse: float,
    out_zero: AnyInt,
    **arguments: Any,
) -> Iterator[Dispatch]:
    """`walk`: the sizes to iterate over, the strides of a, the strides of b."""
    shape, (a_strides, b_strides) = collapse(walk[0], walk[1], walk[2])
    require(len(shape) <= RANK_MAX, f"the tensors do not merge to {RANK_MAX} dims", a, out)
    yield Dispatch(
        kernel("q8_elements"),
        **{"b_scale": 1.0, "b_zero": 0.0, "alpha": 1.0, **arguments},
        a=a,
        out=out,
        count=out.numel,
        rank=len(shape),
        out_inverse=inverse,
        out_zero=float(out_zero),
        shape=shape,
        a_strides=a_strides,
        b_strides=b_strides,
        threads=out.numel,
    )


@op(
    "et_vk.q8ta_add.default",
    "input_a input_b input_a_scale:float input_a_zero_point:int input_b_scale:float input_b_zero_point:int "
    "output_scale:float output_zero_point:int alpha:float -> out",
    shape=lambda a, b, *_: broadcast(a.shape, b.shape),
)
def q8ta_add(a: Operand, b: Operand, *arguments: Any) -> Iterator[Dispatch]:
    a_scale, a_zero, b_scale, b_zero, output_scale, output_zero_point, alpha, out = arguments
    require_int8(a, b, out)
    walk = out.shape, broadcast_strides(a.shape, out.shape), broadcast_strides(b.shape, out.shape)
    yield from _elements(
        *(a, out, walk, reciprocal(output_scale), output_zero_point),
        b=b,
        a_scale=a_scale,
        a_zero=float(a_zero),
        b_scale=b_scale,
        b_zero=float(b_zero),
        alpha=alpha,
    )


@op(
    "et_vk.q8ta_relu.default",
    "input input_scale:float input_zero_point:int output_scale:float output_zero_point:int -> out",
    shape=same_shape,
)
def q8ta_relu(x: Operand, *arguments: Any) -> Iterator[Dispatch]:
    scale, zero, output_scale, output_zero, out = arguments
    walk = (x.numel,), (1,)
    inverse = reciprocal(output_scale)
    yield from _of_one(x, scale, zero, out, inverse, output_zero, walk, has_relu=True)


@op(
    "et_vk.q8ta_pixel_shuffle.default",
    "input input_scale:float input_zero_point:int output_inv_scale:float output_zero_point:int "
    "upscale_factor:int -> out",
    shape=lambda x, *rest: shuffled_shape(x, rest[-1]),
)
def q8ta_pixel_shuffle(x: Operand, *arguments: Any) -> Iterator[Dispatch]:
    scale, zero, output_inv_scale, output_zero, upscale_factor, out = arguments
    walk = shuffled_walk(x, out, upscale_factor)
    inverse = reciprocal(reciprocal(output_inv_scale))
    yield from _of_one(x, scale, zero, out, inverse, output_zero, walk)


def _of_one(
    x: Operand,
    scale: float,
    zero: AnyInt,
    out: Operand,
    inverse: float,
    out_zero: AnyInt,
    walk: tuple[LiveShape, LiveShape],
    *,
    has_relu: bool = False,
) -> Iterator[Dispatch]:
    """out = x, or max(x, 0), iterating over `walk`: sizes, and strides of x."""
    require_int8(x, out)
    sizes, strides = walk
    both = sizes, strides, (0,) * len(sizes)
    numbers = {"HAS_RELU": has_relu, "a_scale": scale, "a_zero": float(zero)}
    yield from _elements(x, out, both, inverse, out_zero, **numbers)
