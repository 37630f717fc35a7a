"""Activations: operators of their own, rewrites of what computes one in parts, and expressions for kernels
that finish with one."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.dtypes import DType
from pteron.families.elementwise.binary import binary
from pteron.families.elementwise.unary import apply_unary, unary
from pteron.graph import Value
from pteron.ops import OPERATORS, Call, Dispatch, Operand, define, require, same_shape
from pteron.ops.operand import compute_type
from pteron.ops.rewrite import Flow, Replacement, constant_number, dtype_of, orders, rewrite, shape_of

# Of x, with the functions of `math`.
ACTIVATIONS = {
    "gelu": "0.5 * x * (1.0 + erf(x * 0.7071067811865476))",
    "gelu_tanh": "0.5 * x * (1.0 + tanh_safe(0.7978845608028654 * (x + 0.044715 * x * x * x)))",
    "hardsigmoid": "at_most(at_least(x + 3.0, 0.0), 6.0) / 6.0",
    "hardswish": "x * at_most(at_least(x + 3.0, 0.0), 6.0) / 6.0",
    "relu": "at_least(x, 0.0)",
    "sigmoid": "1.0 / (1.0 + exp(-x))",
    "silu": "x * (1.0 / (1.0 + exp(-x)))",
}
_OPERATORS = {
    "pteron.hardsigmoid": "hardsigmoid",
    "aten.hardswish.default": "hardswish",
    "aten.relu.default": "relu",
    "aten.sigmoid.default": "sigmoid",
    "pteron.silu": "silu",
}
_CASTS = ("aten._to_copy.default", "dim_order_ops._to_dim_order_copy.default")
_GELU = {"none": "gelu", "tanh": "gelu_tanh"}

for _operator, _name in _OPERATORS.items():
    unary(_operator, ACTIVATIONS[_name], "max(x, 0)" if _name == "relu" else None)


# Rounded as the parts round it: where int8 is made of the result, one bit more or less may be one step of it.
binary("pteron.silu_mul", "a * (1.0 / (1.0 + exp(-a))) * b")


def _gelu(x: Operand, approximate: str, out: Operand) -> Iterator[Dispatch]:
    require(approximate in _GELU, f"approximate must be one of {sorted(_GELU)}, not {approximate!r}", x)
    require(compute_type(x, out) == "f32", "the operator computes floats: its output must hold them", x, out)
    return apply_unary(ACTIVATIONS[_GELU[approximate]], x, out)


define("aten.gelu.default", "self approximate:str -> out", shape=same_shape, compute=_gelu)


def activations(flow: Flow) -> Iterator[tuple[Call, str]]:
    """The calls that compute one of ACTIVATIONS, and its name."""
    for call in flow.of("aten.gelu.default"):
        if name := _GELU.get(str(call.inputs[1])):
            yield call, name
    for operator, name in _OPERATORS.items():
        yield from ((call, name) for call in flow.of(operator))


@rewrite("silu_mul")
def silu_mul(flow: Flow) -> Iterator[Replacement]:
    """x · sigmoid(x) · y, in any order of the factors."""
    for product in flow.of("aten.mul.Tensor"):
        for gated, y in orders(product):
            if gate := flow.maker(gated, "aten.mul.Tensor"):
                for x, sigmoid in _silu_of(flow, gate):
                    new = Call(product.node, OPERATORS["pteron.silu_mul"], (x, y), product.outputs)
                    yield Replacement((sigmoid, gate, product), new)


@rewrite("silu")
def silu(flow: Flow) -> Iterator[Replacement]:
    """x · sigmoid(x), in any order of the factors."""
    for product in flow.of("aten.mul.Tensor"):
        for x, sigmoid in _silu_of(flow, product):
            new = Call(product.node, OPERATORS["pteron.silu"], (x,), product.outputs)
            yield Replacement((sigmoid, product), new)


@rewrite("hardsigmoid")
def hardsigmoid(flow: Flow) -> Iterator[Replacement]:
    """x + 3, bounded by 0 and 6 in one call or two, divided by 6."""
    for quotient in flow.of("aten.div.Tensor"):
        bounded, six = quotient.inputs
        bounds = _bounds_of(flow, bounded)
        low, high = (bounds[-1].inputs[1], bounds[0].inputs[2]) if bounds else (None, None)
        total = flow.maker(bounds[-1].inputs[0], "aten.add.Tensor") if (low, high) == (0, 6) else None
        if total is None or total.inputs[2] != 1 or constant_number(flow, six) != 6:
            continue
        out = quotient.outputs[0]
        for x, three in (total.inputs[:2], total.inputs[1::-1]):
            is_alike = shape_of(x) == shape_of(out) and dtype_of(x) is dtype_of(out)
            if is_alike and constant_number(flow, three) == 3:
                new = Call(quotient.node, OPERATORS["pteron.hardsigmoid"], (x,), quotient.outputs)
                yield Replacement((total, *bounds, quotient), new)


@rewrite("activation_casts")
def activation_casts(flow: Flow) -> Iterator[Replacement]:
    """An activation of f16 between casts to f32 and back: kernels compute in f32 without them."""
    for call, _ in activations(flow):
        widened = next(filter(None, (flow.maker(call.inputs[0], name) for name in _CASTS)), None)
        for narrowed in (each for name in _CASTS for each in flow.of(name)):
            if widened and narrowed.inputs[0] in call.outputs and _are_casts_of_halves(widened, narrowed):
                inputs = widened.inputs[0], *call.inputs[1:]
                new = Call(narrowed.node, call.operator, inputs, narrowed.outputs)
                yield Replacement((call, narrowed), new)


def _are_casts_of_halves(widened: Call, narrowed: Call) -> bool:
    """Whether one makes f32 of f16, and the other f16 of f32."""
    ends = dtype_of(widened.inputs[0]), dtype_of(narrowed.outputs[0])
    middle = dtype_of(widened.outputs[0]), dtype_of(narrowed.inputs[0])
    return ends == (DType.F16, DType.F16) and middle == (DType.F32, DType.F32)


def _bounds_of(flow: Flow, value: Value) -> list[Call]:
    """The last call that bounds a value on both sides, or the last two, of an upper and a lower bound."""
    if call := flow.maker(value, "aten.hardtanh.default"):
        return [call]
    upper = flow.maker(value, "aten.clamp.default")
    if upper is None or upper.inputs[1] is not None:
        return [upper] if upper else []
    lower = flow.maker(upper.inputs[0], "aten.clamp.default")
    return [upper, lower] if lower and lower.inputs[2] is None else []


def _silu_of(flow: Flow, product: Call) -> Iterator[tuple[Value, Call]]:
    """x and the sigmoid of a product x · sigmoid(x)."""
    for x, factor in orders(product):
        sigmoid = flow.maker(factor, "aten.sigmoid.default")
        if sigmoid and sigmoid.inputs == (x,):
            yield x, sigmoid
