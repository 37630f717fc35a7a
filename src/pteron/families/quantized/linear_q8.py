"""Linear layers with int8 weights, a scale per output column, and int8 activations with one for all."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.families.quantized.affine import reciprocal
from pteron.families.quantized.elements_q8 import require_int8
from pteron.families.quantized.planes import Epilogue, Planes, to_int8
from pteron.families.quantized.product_q8 import product
from pteron.graph import Shape
from pteron.ops import AnyInt, Dispatch, Operand, Target, define, op, require
from pteron.ops.window import Window

_QUANTIZED = (
    "x input_scale:float input_zero_point:int weights weight_sums weight_scales output_scale:float "
    "output_zero_point:int bias? activation:str -> out"
)


def _linear_shape(x: Operand, input_scale: float, zero: AnyInt, weights: Operand, *_: object) -> Shape:
    fits = x.rank >= 1 and weights.rank == 2 and x.shape[-1] <= weights.shape[1]
    require(fits, "an int8 product takes x [..., k] and weights [n, at least k]", x, weights)
    return (*x.shape[:-1], weights.shape[0])


def _planes(x: Operand, weights: Operand, out: Operand) -> Planes:
    """Rows as images of one place."""
    columns = weights.shape[0]
    rows = out.numel // columns if columns else 0
    return Planes(rows, 1, x.shape[-1], columns, (1, 1), (1, 1), Window.of((1, 1)))


def q8ta_linear(
    x: Operand,
    input_scale: float,
    input_zero_point: AnyInt,
    weights: Operand,
    weight_sums: Operand,
    weight_scales: Operand,
    output_scale: float,
    output_zero_point: AnyInt,
    bias: Operand | None,
    activation: str,
    out: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    """int8 to int8."""
    require_int8(x, out)
    epilogue = to_int8(
        *(weight_scales, bias, input_scale, input_zero_point),
        *(output_scale, output_zero_point, activation),
    )
    yield from product(x, weights, weight_sums, _planes(x, weights, out), epilogue, out, target)


# The exporter tells one row from several; here live shapes do.
for _name in ("et_vk.q8ta_linear.default", "et_vk.q8ta_linear_gemv.default"):
    define(_name, _QUANTIZED, shape=_linear_shape, compute=q8ta_linear)


@op(
    "et_vk.linear_q8ta_q8csw.default",
    "x input_scale:float input_zero_point:int weights weight_sums weight_scales bias? -> out",
    shape=_linear_shape,
)
def linear_q8ta_q8csw(
    x: Operand,
    input_scale: float,
    input_zero_point: AnyInt,
    weights: Operand,
    weight_sums: Operand,
    weight_scales: Operand,
    bias: Operand | None,
    out: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    """int8, or floats that become it, to floats."""
    require(out.dtype.is_float, "the output must be of floats: it has no scale", out)
    reciprocal(input_scale)
    epilogue = Epilogue(
        *(weight_scales, bias, input_scale, int(input_zero_point), 1.0, 0), {"finish": "R(value)"}
    )
    yield from product(x, weights, weight_sums, _planes(x, weights, out), epilogue, out, target)
