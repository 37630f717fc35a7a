"""Operators that compute each output element from the elements at its place, with broadcasting.

An operator here is one line: its name, what it takes, and the WGSL expression of one element. Floats are
computed in f32 and integers in i32, whatever width they are stored in.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pteron.ops.dispatch import Dispatch
from pteron.ops.operand import Operand, compute_type
from pteron.ops.registry import define, require, same_shape
from pteron.ops.shapes import broadcast_shape, broadcast_strides, collapse
from pteron.wgsl import Kernel


def _saturate(number: float) -> int:
    """The nearest whole number that 32 bits hold, towards zero."""
    return int(min(max(number, -(1 << 31)), (1 << 31) - 1)) if number == number else 0


# One tensor -------------------------------------------------------------------------------------


def apply_unary(
    expression: str, x: Operand, out: Operand, first: float = 0.0, second: float = 0.0
) -> Iterator[Dispatch]:
    """out = expression(x); the scalars are `params.first` and `params.second`.

    `{p}` in the expression is the first scalar in the type that x is computed in.
    """
    is_integer = compute_type(x, out) == "i32" and first == _saturate(first)
    compute, scalar = ("i32", "params.integer") if is_integer else ("f32", "params.first")
    kernel = Kernel("unary", T=compute, apply=f"R({expression.replace('{p}', scalar)})")
    yield Dispatch(
        kernel,
        x=x,
        out=out,
        count=x.numel,
        integer=int(first) if is_integer else 0,
        first=first,
        second=second,
        threads=x.numel,
    )


def unary(name: str, expression: str) -> None:
    """An operator of one tensor `x`."""
    define(name, "self -> out", shape=same_shape, dispatches=partial(apply_unary, expression))


unary("aten.abs.default", "abs(x)")
unary("aten.bitwise_not.default", "1 - x")
unary("aten.cos.default", "cos(x)")
unary("aten.exp.default", "exp(x)")
unary("aten.hardswish.default", "x * at_most(at_least(x + 3.0, 0.0), 6.0) / 6.0")
unary("aten.log10.default", "log(x) * 0.4342944819032518")
unary("aten.logical_not.default", "1 - x")
unary("aten.neg.default", "-x")
unary("aten.relu.default", "at_least(x, 0.0)")
unary("aten.round.default", "round(x)")
unary("aten.rsqrt.default", "inverseSqrt(x)")
unary("aten.sigmoid.default", "1.0 / (1.0 + exp(-x))")
unary("aten.sin.default", "sin(x)")
unary("aten.sqrt.default", "sqrt(x)")
unary("aten.tanh.default", "tanh_safe(x)")


# One tensor and scalars -------------------------------------------------------------------------


def scalar(name: str, signature: str, expression: str) -> None:
    """An operator of one tensor `x` and one or two numbers."""

    def dispatches(x: Operand, *rest: object) -> Iterator[Dispatch]:
        *numbers, out = rest
        assert isinstance(out, Operand)
        return apply_unary(expression, x, out, *(float(n) for n in numbers))  # type: ignore[arg-type]

    define(name, signature, shape=same_shape, dispatches=dispatches)


scalar("aten.hardshrink.default", "self lambd:number -> out", "select(x, 0.0, abs(x) <= params.first)")
scalar(
    "aten.hardtanh.default",
    "self min_val:number max_val:number -> out",
    "at_least(at_most(x, params.second), params.first)",
)
scalar(
    "aten.leaky_relu.default",
    "self negative_slope:number -> out",
    "select(x, x * params.first, x < 0.0)",
)
for _word, _sign in [("eq", "=="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")]:
    scalar(f"aten.{_word}.Scalar", "self other:number -> out", f"x {_sign} {{p}}")
scalar("aten.ne.Scalar", "self other:number -> out", "!(x == {p})")  # so that NaN differs from everything


def _clamp(x: Operand, low: float | None, high: float | None, out: Operand) -> Iterator[Dispatch]:
    require(low is not None or high is not None, "clamp needs a minimum or a maximum", x)
    # The upper bound is applied last: where the two cross, PyTorch's result is the maximum.
    if compute_type(x, out) == "i32":
        low_text = "x" if low is None else f"max(x, {_saturate(low)})"
        expression = low_text if high is None else f"min({low_text}, {_saturate(high)})"
        return apply_unary(expression, x, out)
    lifted = "x" if low is None else "at_least(x, params.first)"
    expression = lifted if high is None else f"at_most({lifted}, params.second)"
    return apply_unary(expression, x, out, low or 0.0, high or 0.0)


define("aten.clamp.default", "self min:number? max:number? -> out", shape=same_shape, dispatches=_clamp)

_GELU = {
    "none": "0.5 * x * (1.0 + erf(x * 0.7071067811865476))",
    "tanh": "0.5 * x * (1.0 + tanh_safe(0.7978845608028654 * (x + 0.044715 * x * x * x)))",
}


def _gelu(x: Operand, approximate: str, out: Operand) -> Iterator[Dispatch]:
    require(approximate in _GELU, f"gelu approximate must be one of {sorted(_GELU)}, not {approximate!r}")
    return apply_unary(_GELU[approximate], x, out)


define("aten.gelu.default", "self approximate:str -> out", shape=same_shape, dispatches=_gelu)

# Products are exact where the general power is not.
_POWERS = {1.0: "x", 2.0: "x * x", 3.0: "x * x * x", 0.5: "sqrt(x)", -1.0: "1.0 / x", -0.5: "inverseSqrt(x)"}


def _pow_scalar(x: Operand, exponent: float, out: Operand) -> Iterator[Dispatch]:
    integers = compute_type(x, out) == "i32"
    require(not integers or exponent >= 0, f"integers to the power of {exponent}", x)
    general = "integer_power(x, {p})" if integers else "power(x, {p})"
    return apply_unary(_POWERS.get(float(exponent), general), x, out, float(exponent))


define("aten.pow.Tensor_Scalar", "self exponent:number -> out", shape=same_shape, dispatches=_pow_scalar)


# Two tensors ------------------------------------------------------------------------------------


def apply_binary(
    expression: str, a: Operand, b: Operand, out: Operand, alpha: float = 1.0
) -> Iterator[Dispatch]:
    """out = expression(a, b), broadcast."""
    a_strides = broadcast_strides(a.shape, out.shape)
    b_strides = broadcast_strides(b.shape, out.shape)
    shape, (a_strides, b_strides) = collapse(out.shape, a_strides, b_strides)
    yield Dispatch(
        Kernel("binary", T=compute_type(a, b, out), combine=f"R({expression})"),
        a=a,
        b=b,
        out=out,
        count=out.numel,
        rank=len(shape),
        alpha=alpha,
        shape=shape,
        a_strides=a_strides,
        b_strides=b_strides,
        threads=out.numel,
    )


def binary(name: str, expression: str, **traits: bool) -> None:
    """An operator of two tensors `a` and `b`."""
    dispatches = partial(apply_binary, expression)
    define(name, "self other -> out", shape=broadcast_shape, dispatches=dispatches, **traits)


binary("aten.bitwise_and.Tensor", "a & b")
binary("aten.bitwise_or.Tensor", "a | b")
binary("aten.logical_and.default", "select(T(0), T(1), a != T(0) && b != T(0))")
binary("aten.logical_or.default", "select(T(0), T(1), a != T(0) || b != T(0))")
binary("aten.div.Tensor", "a / b")
binary("aten.minimum.default", "select(select(b, a, a < b), a, is_nan(f32(a)))")
binary("aten.mul.Tensor", "a * b", is_commutative=True)
binary("pteron.silu_mul", "a / (1.0 + exp(-a)) * b")
for _word, _sign in [("eq", "=="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")]:
    binary(f"aten.{_word}.Tensor", f"a {_sign} b")


def scaled(name: str, expression: str) -> None:
    """An operator of two tensors whose second is scaled by `alpha` first."""

    def dispatches(a: Operand, b: Operand, alpha: float, out: Operand) -> Iterator[Dispatch]:
        return apply_binary(expression, a, b, out, float(alpha))

    define(name, "self other alpha:number -> out", shape=broadcast_shape, dispatches=dispatches)


scaled("aten.add.Tensor", "a + T(params.alpha) * b")
scaled("aten.sub.Tensor", "a - T(params.alpha) * b")

# Vulkan leaves the remainder of negative numbers open, so it is computed from the quotient.
_FLOORED = "a / b - select(0, 1, a / b * b != a && (a < 0) != (b < 0))"
_DIVISIONS: dict[tuple[str | None, str], str] = {
    (None, "f32"): "a / b",
    ("trunc", "f32"): "trunc(a / b)",
    ("floor", "f32"): "floor(a / b)",
    ("trunc", "i32"): "a / b",
    ("floor", "i32"): _FLOORED,
}


def _div_mode(a: Operand, b: Operand, rounding_mode: str | None, out: Operand) -> Iterator[Dispatch]:
    key = (rounding_mode, compute_type(a, b, out))
    require(key in _DIVISIONS, f"div with rounding_mode {rounding_mode!r} into {out.dtype}", a, b)
    return apply_binary(_DIVISIONS[key], a, b, out)


define(
    "aten.div.Tensor_mode",
    "self other rounding_mode:str? -> out",
    shape=broadcast_shape,
    dispatches=_div_mode,
)


def _pow_tensor(a: Operand, b: Operand, out: Operand) -> Iterator[Dispatch]:
    integers = compute_type(a, b, out) == "i32"
    return apply_binary("integer_power(a, b)" if integers else "power(a, b)", a, b, out)


define("aten.pow.Tensor_Tensor", "self exponent -> out", shape=broadcast_shape, dispatches=_pow_tensor)


# Three tensors ----------------------------------------------------------------------------------


def _where(condition: Operand, a: Operand, b: Operand, out: Operand) -> Iterator[Dispatch]:
    walks = [broadcast_strides(operand.shape, out.shape) for operand in (condition, a, b)]
    shape, (condition_strides, a_strides, b_strides) = collapse(out.shape, *walks)
    yield Dispatch(
        "where",
        condition=condition,
        a=a,
        b=b,
        out=out,
        count=out.numel,
        rank=len(shape),
        shape=shape,
        condition_strides=condition_strides,
        a_strides=a_strides,
        b_strides=b_strides,
        threads=out.numel,
    )


define("aten.where.self", "condition self other -> out", shape=broadcast_shape, dispatches=_where)
