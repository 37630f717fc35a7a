"""Operators of one tensor, with a number or two where they take them.

An operator here is one line: its name, what it takes, and the WGSL expression of one element. Floats are
computed in f32 and integers in i32, whatever width they are stored in.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pteron.ops import Dispatch, Operand, define, require, same_shape
from pteron.ops.operand import compute_type
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


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
    yield Dispatch(
        kernel("unary", T=compute, apply=f"R({expression.replace('{p}', scalar)})"),
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
    define(name, "self -> out", shape=same_shape, compute=partial(apply_unary, expression))


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

    define(name, signature, shape=same_shape, compute=dispatches)


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


define("aten.clamp.default", "self min:number? max:number? -> out", shape=same_shape, compute=_clamp)

_GELU = {
    "none": "0.5 * x * (1.0 + erf(x * 0.7071067811865476))",
    "tanh": "0.5 * x * (1.0 + tanh_safe(0.7978845608028654 * (x + 0.044715 * x * x * x)))",
}


def _gelu(x: Operand, approximate: str, out: Operand) -> Iterator[Dispatch]:
    require(approximate in _GELU, f"gelu approximate must be one of {sorted(_GELU)}, not {approximate!r}")
    return apply_unary(_GELU[approximate], x, out)


define("aten.gelu.default", "self approximate:str -> out", shape=same_shape, compute=_gelu)

# Products are exact where the general power is not.
_POWERS = {1.0: "x", 2.0: "x * x", 3.0: "x * x * x", 0.5: "sqrt(x)", -1.0: "1.0 / x", -0.5: "inverseSqrt(x)"}


def _pow_scalar(x: Operand, exponent: float, out: Operand) -> Iterator[Dispatch]:
    integers = compute_type(x, out) == "i32"
    require(not integers or exponent >= 0, f"integers to the power of {exponent}", x)
    general = "integer_power(x, {p})" if integers else "power(x, {p})"
    return apply_unary(_POWERS.get(float(exponent), general), x, out, float(exponent))


define("aten.pow.Tensor_Scalar", "self exponent:number -> out", shape=same_shape, compute=_pow_scalar)
