"""Elementwise operators of Core ATen that only Pteron's partitioner delegates."""

from __future__ import annotations

import math

import pytest
from arguments import tensor
from check import check_op, each, each_integer_and_float, floats, refuse_op

NAN, INF = math.nan, math.inf
EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-30, 87.0, -87.0, 1e30, -1e30, INF, -INF, NAN)
ANY = (
    "asinh",
    "atan",
    "ceil",
    "cosh",
    "erf",
    "expm1",
    "floor",
    "isinf",
    "isnan",
    "sign",
    "sinh",
    "tan",
    "trunc",
)
DOMAINS = {
    "acos": (-1, 1),
    "acosh": (1, 9),
    "asin": (-1, 1),
    "atanh": (-0.99, 0.99),
    "log": (0.01, 9),
    "log1p": (-0.9, 9),
    "log2": (0.01, 9),
    "reciprocal": (0.1, 9),
}


@pytest.mark.long(every=2)
@floats
def test_functions(dtype: str) -> None:
    for name in ANY:
        check_op(f"aten.{name}.default", tensor("S", 5, "T"), dtype=dtype)
    for name, (low, high) in DOMAINS.items():
        check_op(f"aten.{name}.default", tensor("S", 5, low=low, high=high), dtype=dtype)


@pytest.mark.parametrize("name", [name for name in (*ANY, *DOMAINS) if name != "tan"])
def test_edges(name: str) -> None:
    check_op(f"aten.{name}.default", tensor(values=EDGES))


@pytest.mark.parametrize(
    "name", ["asinh", "atan", "erf", "expm1", "log1p", "sinh", "asin", "atanh", "tan", "tanh"]
)
def test_near_zero_errors_are_relative(name: str) -> None:
    values = [sign * 10.0**exponent for exponent in range(-30, 0) for sign in (1, -1)]
    check_op(f"aten.{name}.default", tensor(values=tuple(values)), tolerance=2e-6, atol=0)


def test_inverse_functions_have_the_digits_of_a_float() -> None:
    """Everywhere between the ends of their formulas; halves and ones are where these change."""
    values = (*(place / 512 for place in range(-511, 512)), 1.0, -1.0)
    for name in ("asin", "acos", "atan", "asinh"):
        check_op(f"aten.{name}.default", tensor(values=values), tolerance=1e-6, atol=1e-7)


def test_logarithms_near_one() -> None:
    values = tuple(1 + sign * 2.0**-exponent for exponent in range(1, 24) for sign in (1, -1))
    for name in ("log", "log2"):
        check_op(f"aten.{name}.default", tensor(values=values), tolerance=2e-6, atol=0)


@each_integer_and_float
def test_maximum_and_ne(dtype: str) -> None:
    for name in ("aten.maximum.default", "aten.ne.Tensor", "aten.logical_xor.default"):
        check_op(name, tensor("S", 5, low=-2, high=2), tensor(3, 1, 5, low=-2, high=2), dtype=dtype)


@floats
def test_gradient_of_silu(dtype: str) -> None:
    check_op("aten.silu_backward.default", tensor("S", 7), tensor("S", 7), dtype=dtype)


def test_maximum_of_edges() -> None:
    for name in ("aten.maximum.default", "aten.atan2.default", "aten.fmod.Tensor", "aten.remainder.Tensor"):
        check_op(name, tensor(values=EDGES * len(EDGES)), tensor(values=[b for b in EDGES for _ in EDGES]))


@each_integer_and_float
def test_numbers(dtype: str) -> None:
    x = tensor("S", 5, low=1, high=9)
    for name in ("add", "sub"):
        check_op(f"aten.{name}.Scalar", x, 3, 2, dtype=dtype)
    check_op("aten.mul.Scalar", x, -3, dtype=dtype)
    for name in ("fmod", "remainder"):
        check_op(f"aten.{name}.Scalar", tensor("S", 5, low=-9, high=9), -4, dtype=dtype)
        check_op(f"aten.{name}.Tensor", tensor("S", 5, low=-9, high=9), x, dtype=dtype)


@floats
def test_more_numbers(dtype: str) -> None:
    check_op("aten.div.Scalar", tensor("S", 5), 3, dtype=dtype)
    check_op("aten.pow.Scalar", 2, tensor("S", 5), dtype=dtype)
    check_op("aten.elu.default", tensor("S", 5), 1.5, 1.1, 0.7, dtype=dtype)
    check_op("aten.softplus.default", tensor("S", 5, low=-90, high=90), 1.5, 20, dtype=dtype)
    check_op("aten.clamp.Tensor", tensor("S", 5), tensor(5), tensor("S", 1), dtype=dtype)
    check_op("aten.clamp.Tensor", tensor("S", 5), None, tensor("S", 1), dtype=dtype)


@pytest.mark.long(every=2)
@floats
def test_more_functions(dtype: str) -> None:
    for name in ("erfc", "exp2", "signbit"):
        check_op(f"aten.{name}.default", tensor("S", 5, "T"), dtype=dtype)
    check_op("aten.erfinv.default", tensor("S", 5, low=-0.999, high=0.999), dtype=dtype)
    for decimals in (-1, 0, 2):
        values = tensor(values=[0.125, -3.456, 25.0, 1e4, 7.5, -0.005])
        check_op("aten.round.decimals", values, decimals)
    for name in ("fmax", "fmin", "hypot"):
        check_op(f"aten.{name}.default", tensor("S", 5), tensor(3, 1, 5), dtype=dtype)
    check_op("aten.copysign.Tensor", tensor("S", 5), tensor(3, 1, 5), dtype=dtype)


@pytest.mark.parametrize("name", ["erfc", "exp2", "signbit", "erfinv"])
def test_more_edges(name: str) -> None:
    edges = [value for value in EDGES if not math.isnan(value)] if name == "signbit" else EDGES
    check_op(f"aten.{name}.default", tensor(values=edges))


def test_small_complements() -> None:
    check_op("aten.erfc.default", tensor(values=[0.5, 1.0, 2.0, 3.0, 4.0]), tolerance=2e-6, atol=0)


@pytest.mark.parametrize("name", ["fmax.default", "fmin.default", "hypot.default", "copysign.Tensor"])
def test_pairs_of_edges(name: str) -> None:
    edges = EDGES[:-1] if name.startswith("copysign") else EDGES  # the sign of a NaN is not fixed
    check_op(
        f"aten.{name}", tensor(values=edges * len(edges)), tensor(values=[b for b in edges for _ in edges])
    )


@each("dtype", ("i32", "i64", "bool"))
def test_bits(dtype: str) -> None:
    x, y = tensor("S", 5, low=-9, high=9), tensor(3, 1, 5, low=0, high=9)
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        check_op(f"aten.{name}.Tensor", x, y, dtype=dtype)
        check_op(f"aten.{name}.Scalar", x, 1 if dtype == "bool" else 5, dtype=dtype)
    if dtype != "bool":
        for name in ("__lshift__", "__rshift__", "bitwise_left_shift", "bitwise_right_shift"):
            check_op(f"aten.{name}.Tensor", x, y, dtype=dtype)
        for name in ("__lshift__", "__rshift__"):
            check_op(f"aten.{name}.Scalar", x, 3, dtype=dtype)
    refuse_op("aten.bitwise_and.Scalar", tensor(3), 5, match="integers or booleans")
