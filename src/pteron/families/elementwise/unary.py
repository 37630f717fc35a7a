"""Operators of one tensor, with a number or two where they take them.

An operator here is one line: its name, what it takes, and the WGSL expression of one element. Floats are
computed in f32 and integers in i32, whatever width they are stored in; an operator that PyTorch computes in
floats takes integers too, where its output is of floats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import cast

from pteron.dtypes import DType, Storage
from pteron.ops import Dispatch, Operand, Scratch, Target, Weight, define, require, same_shape
from pteron.ops.operand import changes_words, compute_type, wrapped
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


def _saturate(number: float) -> int:
    """The nearest whole number that 32 bits hold, towards zero."""
    return int(min(max(number, -(1 << 31)), (1 << 31) - 1)) if number == number else 0


def require_word(number: float, *operands: Operand) -> None:
    """Refuse to compute integers with a number that 32 bits do not hold."""
    require(-(1 << 31) <= number < 1 << 31, f"{number} does not fit into 32 bits", *operands)


# One tensor -------------------------------------------------------------------------------------


def apply_unary(
    expression: str, x: Operand, out: Operand, first: float = 0.0, second: float = 0.0
) -> Iterator[Dispatch]:
    """out = expression(x); the scalars are `params.first` and `params.second`.

    `{p}` in the expression is the first scalar in the type that x is computed in. The functions that it may
    call are those that unary.wgsl imports.
    """
    is_integer = compute_type(x, out) == "i32" and first == _saturate(first)
    compute, scalar = ("i32", "params.integer") if is_integer else ("f32", "params.first")
    apply = element(expression.replace("{p}", scalar), compute, out)
    yield Dispatch(
        kernel("unary", T=compute, apply=apply),
        x=x,
        out=out,
        count=x.numel,
        integer=int(first) if is_integer else 0,
        first=first,
        second=second,
        threads=x.numel,
    )


def widened(x: Operand, target: Target) -> tuple[Operand, list[Dispatch]]:
    """x as f32, with the launch that makes it, for kernels of software adapters that only take f32."""
    is_half = isinstance(x, Operand) and x.storage is Storage.F16 and not isinstance(x.buffer, Weight)
    if not (target.is_cpu and is_half):
        return x, []
    wide = replace(x, storage=Storage.F32, buffer=Scratch(x.numel))
    return wide, list(apply_unary("x", x, wide))


def unary(name: str, expression: str, whole: str | None = None) -> None:
    """An operator of one tensor `x`; `whole` is the expression of one element that is an integer."""

    def dispatches(x: Operand, out: Operand) -> Iterator[Dispatch]:
        if compute_type(x, out) == "f32":
            return apply_unary(expression, x, out)
        require(whole is not None, "the operator computes floats: its output must hold them", x, out)
        return apply_unary(whole or expression, x, out)

    define(name, "self -> out", shape=same_shape, compute=dispatches)


unary("aten.abs.default", "abs(x)", "abs(x)")
unary("aten.logical_not.default", "x == 0.0", "x == 0")
unary("aten.neg.default", "-x", "-x")
unary("aten.round.default", "round(x)", "x")
unary("aten.rsqrt.default", "inverseSqrt(x)")
unary("aten.sqrt.default", "sqrt(x)")
unary("aten.ceil.default", "ceil(x)", "x")
unary("aten.floor.default", "floor(x)", "x")
unary("aten.trunc.default", "trunc(x)", "x")
unary("aten.isinf.default", "!(is_nan(x) || is_finite(x))", "0")
unary("aten.isnan.default", "is_nan(x)", "0")
unary("aten.reciprocal.default", "1.0 / x")
unary("aten.sign.default", "select(sign(x), 0.0, is_nan(x))", "sign(x)")
for _word in [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log10",
    "log1p",
    "log2",
    "sin",
    "sinh",
    "tan",
    "tanh",
]:
    unary(f"aten.{_word}.default", f"{_word}_of(x)")
unary("aten.signbit.default", "bitcast<u32>(x) >> 31u", "x < 0")


def _bitwise_not(x: Operand, out: Operand) -> Iterator[Dispatch]:
    require(not x.dtype.is_float, "bitwise_not takes integers or booleans", x)
    return apply_unary("1 - x" if x.dtype is DType.BOOL else "~x", x, out)


define("aten.bitwise_not.default", "self -> out", shape=same_shape, compute=_bitwise_not)


# One tensor and scalars -------------------------------------------------------------------------


def scalar(name: str, signature: str, expression: str, *, floats: bool = False) -> None:
    """An operator of one tensor `x` and one or two numbers; some take no integers."""

    def dispatches(x: Operand, *rest: object) -> Iterator[Dispatch]:
        *numbers, out = rest
        assert isinstance(out, Operand)
        require(x.dtype.is_float or not floats, "the operator takes floats", x)
        return apply_unary(expression, x, out, *map(float, cast(list[float], numbers)))

    define(name, signature, shape=same_shape, compute=dispatches)


_SHRUNK, _LEAKY = "select(x, 0.0, abs(x) <= params.first)", "select(x, x * params.first, x < 0.0)"
scalar("aten.hardshrink.default", "self lambd:number -> out", _SHRUNK, floats=True)
scalar("aten.leaky_relu.default", "self negative_slope:number -> out", _LEAKY, floats=True)
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
    if low != low or high != high:
        expression = "nan()"
    return apply_unary(expression, x, out, low or 0.0, high or 0.0)


_BOUNDS = "self min_val:number max_val:number -> out"
define("aten.hardtanh.default", _BOUNDS, shape=same_shape, compute=_clamp)
define("aten.clamp.default", "self min:number? max:number? -> out", shape=same_shape, compute=_clamp)

# Products are exact where the general power is not.
_POWERS = {1.0: "x", 2.0: "x * x", 3.0: "x * x * x", 0.5: "sqrt(x)", -1.0: "1.0 / x", -0.5: "inverseSqrt(x)"}


def _pow_scalar(x: Operand, exponent: float, out: Operand) -> Iterator[Dispatch]:
    integers = compute_type(x, out) == "i32"
    stays_whole = exponent >= 0 and exponent == _saturate(exponent)
    fits = not integers or stays_whole
    require(fits, f"integers to the power of {exponent}: the exponent must be a whole number from 0 on", x)
    general = "integer_power(x, {p})" if integers else "power(x, {p})"
    return apply_unary(_POWERS.get(float(exponent), general), x, out, float(exponent))


define("aten.pow.Tensor_Scalar", "self exponent:number -> out", shape=same_shape, compute=_pow_scalar)


define(
    "aten.pow.Scalar",
    "self:number exponent -> out",
    shape=lambda base, x: x.shape,
    compute=lambda base, x, out: apply_unary(
        "integer_power({p}, x)" if compute_type(x, out) == "i32" else "power({p}, x)",
        x,
        out,
        float(base),
    ),
)


def _softplus(x: Operand, beta: float, threshold: float, out: Operand) -> Iterator[Dispatch]:
    require(x.dtype.is_float, "the operator takes floats", x)
    expression = (
        "select(log1p_of(exp_of(params.first * x)) / params.first, x, params.first * x > params.second)"
    )
    return apply_unary(expression, x, out, float(beta), float(threshold))


define(
    "aten.softplus.default",
    "self beta:number threshold:number -> out",
    shape=same_shape,
    compute=_softplus,
)


def _elu(x: Operand, alpha: float, scale: float, input_scale: float, out: Operand) -> Iterator[Dispatch]:
    require(x.dtype.is_float, "the operator takes floats", x)
    expression = f"select(x * {float(scale)}, params.first * expm1_of(params.second * x), x <= 0.0)"
    return apply_unary(expression, x, out, alpha * scale, float(input_scale))


define(
    "aten.elu.default",
    "self alpha:number scale:number input_scale:number -> out",
    shape=same_shape,
    compute=_elu,
)


# Vulkan leaves the remainder of negative integers open, so it is computed from the quotient.
FMOD = {"f32": "fmod(a, b)", "i32": "a - a / b * b"}
REMAINDER = {
    "f32": "modulo(a, b)",
    "i32": "a - a / b * b + select(0, b, a / b * b != a && (a < 0) != (b < 0))",
}


def _with_number(expressions: dict[str, str], x: Operand, number: float, out: Operand) -> Iterator[Dispatch]:
    if compute_type(x, out) == "i32":
        require(number != 0, "the remainder of a division by zero", x)
        require_word(number, x)
    expression = re.sub(r"\bb\b", "{p}", re.sub(r"\ba\b", "x", expressions[compute_type(x, out)]))
    return apply_unary(expression, x, out, float(number))


for _name, _expressions in (("aten.fmod.Scalar", FMOD), ("aten.remainder.Scalar", REMAINDER)):
    define(_name, "self other:number -> out", shape=same_shape, compute=partial(_with_number, _expressions))


def _round_decimals(x: Operand, decimals: int, out: Operand) -> Iterator[Dispatch]:
    require(x.dtype.is_float, "the operator takes floats", x)
    scale, expression = 10.0 ** abs(decimals), "round(x * params.first) / params.first"
    return apply_unary(
        expression if decimals >= 0 else "round(x / params.first) * params.first", x, out, scale
    )


define("aten.round.decimals", "self decimals:int -> out", shape=same_shape, compute=_round_decimals)


def element(expression: str, compute: str, out: Operand) -> str:
    """The WGSL expression of an element of `out`: booleans are 0 or 1, narrow integers wrap round."""
    if out.dtype is DType.BOOL:
        return f"R(!(T({expression}) == T(0)))"
    is_narrow = compute == "i32" and changes_words(DType.I32, out.dtype)
    return f"R({wrapped(f'T({expression})', out.dtype) if is_narrow else expression})"
