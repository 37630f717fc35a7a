"""Operators that combine the elements of two or three tensors at their places, with broadcasting.

An operator here is one line: its name and the WGSL expression of one element of `a` and one of `b`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from pteron.families.elementwise.unary import FMOD, REMAINDER, apply_unary, element, require_word
from pteron.ops import Dispatch, Operand, Target, define, divides, require, same_shape
from pteron.ops.operand import compute_type
from pteron.ops.shapes import broadcast_shape, broadcast_strides, collapse
from pteron.wgsl import Kernels

kernel = Kernels(__name__)


def apply_binary(
    expression: str,
    a: Operand,
    b: Operand,
    out: Operand,
    alpha: float = 1.0,
    *,
    target: Target | None = None,
) -> Iterator[Dispatch]:
    """out = expression(a, b), broadcast. Four elements at a time if the target is a software adapter."""
    compute = compute_type(a, b, out)
    formula = {"T": compute, "combine": element(expression, compute, out)}
    if a.rank == b.rank == out.rank and a.shape == b.shape == out.shape:  # tuples compare dims first
        alike = kernel("binary_alike", **formula)
        yield Dispatch(alike, a=a, b=b, out=out, count=out.numel, alpha=alpha, threads=out.numel)
        return
    is_alike = out.numel in (a.numel, b.numel)  # one of them has the shape of out
    if target and target.is_cpu and is_alike and out.numel and divides(4, out.numel):
        yield _by_quads(formula, a, b, out, alpha)
        return
    a_strides = broadcast_strides(a.shape, out.shape)
    b_strides = broadcast_strides(b.shape, out.shape)
    shape, (a_strides, b_strides) = collapse(out.shape, a_strides, b_strides)
    yield Dispatch(
        kernel("binary", **formula),
        RANK=max(1, len(shape)),
        a=a,
        b=b,
        out=out,
        count=out.numel,
        alpha=alpha,
        shape=shape,
        a_strides=a_strides,
        b_strides=b_strides,
        threads=out.numel,
    )


def _by_quads(formula: dict[str, str], a: Operand, b: Operand, out: Operand, alpha: float) -> Dispatch:
    """Where one of them has as many elements as out."""
    is_a = a.numel == out.numel
    x, y = (a, b) if is_a else (b, a)
    shape, (strides,) = collapse(out.shape, broadcast_strides(y.shape, out.shape))
    is_same = divides(4, shape[-1]) and strides[-1] == 0  # for four elements
    return Dispatch(
        kernel("binary_quads", **formula),
        RANK=len(shape),
        LOADS=1 if is_same else 4,
        IS_B=not is_a,
        x=x,
        y=y,
        out=out,
        count=out.numel,
        alpha=alpha,
        shape=shape,
        y_strides=strides,
        threads=out.numel // 4,
    )


def binary(name: str, expression: str) -> None:
    """An operator of two tensors `a` and `b`."""
    dispatches = partial(apply_binary, expression)
    define(name, "self other -> out", shape=broadcast_shape, compute=dispatches)


# Not equal is written as the opposite of equal, so that NaN differs from everything.
binary("aten.logical_and.default", "!(a == T(0)) && !(b == T(0))")
binary("aten.logical_or.default", "!(a == T(0) && b == T(0))")
binary("aten.div.Tensor", "a / b")
_MINIMUM = "select(select(b, a, a < b), a, is_nan(f32(a)))"
_MAXIMUM = "select(select(b, a, a > b), a, is_nan(f32(a)))"
binary("aten.minimum.default", _MINIMUM)
binary("aten.maximum.default", _MAXIMUM)
binary("aten.fmin.default", "select(select(b, a, a < b || is_nan(f32(b))), b, is_nan(f32(a)))")
binary("aten.fmax.default", "select(select(b, a, a > b || is_nan(f32(b))), b, is_nan(f32(a)))")
binary("aten.mul.Tensor", "a * b")
binary("aten.ne.Tensor", "!(a == b)")
binary("aten.logical_xor.default", "(a == T(0)) != (b == T(0))")
for _word, _sign in [("eq", "=="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")]:
    binary(f"aten.{_word}.Tensor", f"a {_sign} b")


def bitwise(name: str, expression: str, number_overload: str = "Scalar") -> None:
    """An operator on the bits of two tensors, or of a tensor and a number."""

    def dispatches(a: Operand, b: Operand, out: Operand) -> Iterator[Dispatch]:
        whole = compute_type(a, b, out) == "i32"
        require(whole, "bitwise operators take integers or booleans", a, b, out)
        return apply_binary(expression, a, b, out)

    def with_number(x: Operand, number: float, out: Operand) -> Iterator[Dispatch]:
        whole = compute_type(x, out) == "i32" and number == int(number)
        require(whole, "bitwise operators take integers or booleans", x, out)
        require_word(number, x)
        named = re.sub(r"\bb\b", "{p}", re.sub(r"\ba\b", "x", expression))
        return apply_unary(named, x, out, float(number))

    define(f"{name}.Tensor", "self other -> out", shape=broadcast_shape, compute=dispatches)
    define(f"{name}.{number_overload}", "self other:number -> out", shape=same_shape, compute=with_number)


bitwise("aten.bitwise_and", "a & b")
bitwise("aten.bitwise_or", "a | b")
bitwise("aten.bitwise_xor", "a ^ b")
# A shift by 32 bits or more, or a negative one, has no result in C; here it is that of shifting bit by bit.
_LEFT, _RIGHT = "select(a << u32(b & 31), 0, b < 0 || b > 31)", "a >> u32(select(b, 31, b < 0 || b > 31))"
for _sign, _word, _expression in (("l", "left", _LEFT), ("r", "right", _RIGHT)):
    bitwise(f"aten.__{_sign}shift__", _expression)
    bitwise(f"aten.bitwise_{_word}_shift", _expression, "Tensor_Scalar")
binary("aten.atan2.default", "atan2_of(a, b)")
binary("aten.hypot.default", "hypot_of(a, b)")
binary(
    "aten.copysign.Tensor", "bitcast<f32>((bitcast<u32>(a) & 0x7fffffffu) | (bitcast<u32>(b) & 0x80000000u))"
)
# A gradient that PyTorch does not decompose in exported programs.
define(
    "aten.silu_backward.default",
    "grad_output self -> out",
    shape=broadcast_shape,
    compute=partial(apply_binary, "a / (1.0 + exp(-b)) * (1.0 + b - b / (1.0 + exp(-b)))"),
)


def scaled(name: str, expression: str) -> None:
    """An operator of two tensors whose second is scaled by `alpha` first."""

    def dispatches(
        a: Operand, b: Operand, alpha: float, out: Operand, *, target: Target | None = None
    ) -> Iterator[Dispatch]:
        if compute_type(a, b, out) == "i32":  # floats do not hold every integer
            require_word(alpha, a, b)
            return apply_binary(expression.replace("T(params.alpha)", f"i32({int(alpha)})"), a, b, out)
        return apply_binary(expression, a, b, out, float(alpha), target=target)

    define(name, "self other alpha:number -> out", shape=broadcast_shape, compute=dispatches)


scaled("aten.add.Tensor", "a + T(params.alpha) * b")
scaled("aten.sub.Tensor", "a - T(params.alpha) * b")


def _by_type(expressions: dict[str, str], a: Operand, b: Operand, out: Operand) -> Iterator[Dispatch]:
    return apply_binary(expressions[compute_type(a, b, out)], a, b, out)


for _name, _expressions in (("aten.fmod.Tensor", FMOD), ("aten.remainder.Tensor", REMAINDER)):
    define(_name, "self other -> out", shape=broadcast_shape, compute=partial(_by_type, _expressions))

# Vulkan leaves the remainder of negative numbers open, so it is computed from the quotient.
_FLOORED = "a / b - select(0, 1, a / b * b != a && (a < 0) != (b < 0))"
_DIVISIONS: dict[tuple[str | None, str], str] = {
    (None, "f32"): "a / b",
    ("trunc", "f32"): "trunc(a / b)",
    ("floor", "f32"): "floor_quotient(a, b)",
    ("trunc", "i32"): "a / b",
    ("floor", "i32"): _FLOORED,
}


def _div_mode(a: Operand, b: Operand, rounding_mode: str | None, out: Operand) -> Iterator[Dispatch]:
    modes = (None, "trunc", "floor")
    require(rounding_mode in modes, f"rounding_mode must be one of {modes}, not {rounding_mode!r}", a, b)
    key = (rounding_mode, compute_type(a, b, out))
    require(key in _DIVISIONS, "quotients that are not rounded are floats: the output must be", a, b, out)
    return apply_binary(_DIVISIONS[key], a, b, out)


_DIVISION = "self other rounding_mode:str? -> out"
define("aten.div.Tensor_mode", _DIVISION, shape=broadcast_shape, compute=_div_mode)


def _pow_tensor(a: Operand, b: Operand, out: Operand) -> Iterator[Dispatch]:
    integers = compute_type(a, b, out) == "i32"
    return apply_binary("integer_power(a, b)" if integers else "power(a, b)", a, b, out)


define("aten.pow.Tensor_Tensor", "self exponent -> out", shape=broadcast_shape, compute=_pow_tensor)


# A tensor and a number ---------------------------------------------------------------------------


def _with_number(expression: str, x: Operand, number: float, out: Operand) -> Iterator[Dispatch]:
    whole = compute_type(x, out) == "i32"
    require(not whole or number == int(number), f"integers and {number}: the output must hold floats", x, out)
    if whole:
        require_word(number, x)
    return apply_unary(expression, x, out, float(number))


for _word, _expression in (("mul", "x * {p}"), ("div", "x / {p}")):
    define(
        f"aten.{_word}.Scalar",
        "self other:number -> out",
        shape=same_shape,
        compute=partial(_with_number, _expression),
    )
for _word, _expression in (("add", "x + {p}"), ("sub", "x - {p}")):

    def _scaled_number(
        x: Operand, number: float, alpha: float, out: Operand, *, expression: str = _expression
    ) -> Iterator[Dispatch]:
        return _with_number(expression, x, number * alpha, out)

    define(
        f"aten.{_word}.Scalar",
        "self other:number alpha:number -> out",
        shape=same_shape,
        compute=_scaled_number,
    )


# Three tensors ----------------------------------------------------------------------------------


def _clamp(x: Operand, low: Operand | None, high: Operand | None, out: Operand) -> Iterator[Dispatch]:
    require(low is not None or high is not None, "clamp needs a minimum or a maximum", x)
    if low is not None:
        lifted = out if high is None else out.scratch()
        yield from apply_binary(_MAXIMUM, x, low, lifted)
        x = lifted
    if high is not None:
        yield from apply_binary(_MINIMUM, x, high, out)


define("aten.clamp.Tensor", "self min? max? -> out", shape=broadcast_shape, compute=_clamp)


def apply_where(condition: Operand, a: Operand, b: Operand, out: Operand) -> Iterator[Dispatch]:
    walks = [broadcast_strides(operand.shape, out.shape) for operand in (condition, a, b)]
    shape, (condition_strides, a_strides, b_strides) = collapse(out.shape, *walks)
    yield Dispatch(
        kernel("where"),
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


define("aten.where.self", "condition self other -> out", shape=broadcast_shape, compute=apply_where)
