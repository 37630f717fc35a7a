"""Element-wise operators on integers and booleans of every width, and floor division of floats."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from arguments import tensor
from check import check_op, each, each_integer_and_float, refuse_op
from one_operator import OneOperator

from pteron.dtypes import DType
from pteron.ops.operand import Slot

NAN, INF = math.nan, math.inf
NARROW = {"u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64}
VALUES = {dtype: (0, 1, 5, 127) if dtype == "u8" else (0, 1, 5, -3, 127, -128) for dtype in NARROW}
every_width = each("dtype", sorted(NARROW))


def in_its_own_type(name: str, dtype: str) -> Any:
    """PyTorch's operator on tensors of the type itself, so that narrow integers wrap round as they do."""

    def oracle(*arguments: Any) -> Any:
        operator = getattr(torch.ops.aten, name)
        return operator(*(x.to(NARROW[dtype]) if isinstance(x, torch.Tensor) else x for x in arguments))

    return oracle


# Not --------------------------------------------------------------------------------------------


@every_width
def test_bitwise_not_of_integers(dtype: str) -> None:
    oracle = in_its_own_type("bitwise_not", dtype)
    values = tensor(values=(*VALUES[dtype], 200) if dtype == "u8" else VALUES[dtype])
    check_op("aten.bitwise_not.default", values, oracle=oracle, dtype=dtype, out=dtype)


@every_width
def test_logical_not_of_integers(dtype: str) -> None:
    check_op("aten.logical_not.default", tensor(values=VALUES[dtype]), dtype=dtype)


def test_logical_not_of_floats() -> None:
    check_op("aten.logical_not.default", tensor(values=(0.0, -0.0, 0.25, -3.0, 1.0, INF, -INF, NAN)))


def test_not_of_booleans_is_not_of_integers() -> None:
    for name in ("bitwise_not", "logical_not"):
        check_op(f"aten.{name}.default", tensor(values=(True, False)), dtype="bool")


# Integers ---------------------------------------------------------------------------------------


@each("name", ["abs", "neg", "relu", "round"])
@every_width
def test_operators_that_keep_integers(name: str, dtype: str) -> None:
    oracle = in_its_own_type(name, dtype)
    check_op(f"aten.{name}.default", tensor(values=VALUES[dtype]), oracle=oracle, dtype=dtype, out=dtype)


@every_width
def test_hardtanh_and_clamp_of_integers(dtype: str) -> None:
    x = tensor(values=VALUES[dtype])
    hardtanh, clamp = (in_its_own_type(name, dtype) for name in ("hardtanh", "clamp"))
    check_op("aten.hardtanh.default", x, 0, 6, oracle=hardtanh, dtype=dtype, out=dtype)
    check_op("aten.clamp.default", x, 1, 100, oracle=clamp, dtype=dtype, out=dtype)


@each("name", ["cos", "exp", "rsqrt", "sigmoid", "sin", "sqrt", "tanh", "log10"])
@each("dtype", ["u8", "i8", "i32", "i64", "bool"])
def test_operators_that_make_floats_of_integers(name: str, dtype: str) -> None:
    def oracle(x: Any) -> Any:
        return getattr(torch.ops.aten, name)(x.double())

    check_op(f"aten.{name}.default", tensor(values=(1, 2, 5)), oracle=oracle, dtype=dtype, out="f32")


@each("exponent", [0.5, -0.5, 1.5])
def test_fractional_powers_of_integers_are_floats(exponent: float) -> None:
    def oracle(x: Any, power: float) -> Any:
        return x.double() ** power

    check_op(
        "aten.pow.Tensor_Scalar", tensor(values=(1, 2, 5)), exponent, oracle=oracle, dtype="i32", out="f32"
    )


@each("word", ["eq", "lt", "le", "gt", "ge", "ne"])
@every_width
def test_compare_integers_of_every_width(word: str, dtype: str) -> None:
    check_op(f"aten.{word}.Scalar", tensor(values=VALUES[dtype]), 1, dtype=dtype)


def stored(
    name: str, arguments: list[Any], values: list[Any], dtype: str, source: str | None = None
) -> list[int]:
    """The words that an operator leaves on the device, where the next operator meets them."""
    given = DType(source or dtype).numpy
    runs = dict(zip(arguments, (np.asarray(value, given) for value in values), strict=True))
    defaults: dict[str, list[Any]] = {"aten.add.Tensor": [1], "aten._to_copy.default": [None] * 6}
    rest = defaults.get(name, [])
    operator = OneOperator(name, [*arguments, *rest], runs, [(runs[arguments[0]].shape, DType(dtype))])
    operator.run(runs)
    slot = operator.compiled.placement.buffers[operator.outputs[0].id]
    assert isinstance(slot, Slot)
    data = operator.device.read(operator.session._arena[slot], 4 * operator.outputs[0].shape_max[0])
    operator.close()
    return [int(word) for word in np.frombuffer(data, np.int32)]


@each(
    ("dtype", "a", "b", "total"),
    [
        ("u8", [1, 4, 128, 255], [127, 2, 128, 255], [128, 6, 0, 254]),
        ("i8", [1, 4, 127, -128], [127, 2, 127, -1], [-128, 6, -2, 127]),
        ("i16", [1, 4, 32767, -32768], [127, 2, 1, -1], [128, 6, -32768, 32767]),
    ],
)
def test_sums_wrap_round_where_they_are_stored(
    dtype: str, a: list[int], b: list[int], total: list[int]
) -> None:
    assert stored("aten.add.Tensor", [tensor(4), tensor(4)], [a, b], dtype) == total


@each("source", ["i32", "f32"])
def test_conversions_wrap_round_where_they_are_stored(source: str) -> None:
    values = [0, -1, 300, -129, 128, 70000, -32769]
    for dtype in ("u8", "i8", "i16"):
        wrapped = np.array(values, np.int32).astype(DType(dtype).numpy).tolist()
        assert stored("aten._to_copy.default", [tensor(7)], [values], dtype, source) == wrapped


def test_not_and_minus_wrap_round_where_they_are_stored() -> None:
    assert stored("aten.bitwise_not.default", [tensor(4)], [[0, 1, 5, 255]], "u8") == [255, 254, 250, 0]
    assert stored("aten.neg.default", [tensor(4)], [[0, 1, 5, 255]], "u8") == [0, 255, 251, 1]
    assert stored("aten.neg.default", [tensor(4)], [[0, 1, -127, -128]], "i8") == [0, -1, 127, -128]


def test_a_sum_of_booleans_is_a_boolean() -> None:
    def either(a: Any, b: Any, alpha: int) -> Any:
        return a | b

    a, b = tensor(values=(True, False, True)), tensor(values=(True, False, False))
    check_op("aten.add.Tensor", a, b, 1, oracle=either, dtype="bool")


@each_integer_and_float
def test_logical_operators_of_numbers(dtype: str) -> None:
    a, b = tensor(values=(0, 2, 0, -3)), tensor(values=(0, 0, 5, 4))
    check_op("aten.logical_and.default", a, b, dtype=dtype)
    check_op("aten.logical_or.default", a, b, dtype=dtype)


def test_nan_is_true() -> None:
    a, b = tensor(values=(NAN, NAN, 0.0, 1.0)), tensor(values=(NAN, 0.0, NAN, NAN))
    check_op("aten.logical_and.default", a, b)
    check_op("aten.logical_or.default", a, b)
    check_op("aten._to_copy.default", a, *[None] * 6, oracle=lambda x, *_: x.bool())


@each("alpha", [3, -1, 2**24 + 1, -(2**31)])
@each("name", ["add", "sub"])
def test_alpha_is_exact(name: str, alpha: int) -> None:
    a, b = tensor(values=(1, 2, -3)), tensor(values=(1, 0, -1))
    check_op(f"aten.{name}.Tensor", a, b, alpha, dtype="i32")


# Floor division ---------------------------------------------------------------------------------

DIVIDE = "aten.div.Tensor_mode"
NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.1, -0.1, 0.3, 7.5, -7.5, 3.0, 1e10, 1e-10, 16777216.0, INF, -INF, NAN)


def in_f32(a: Any, b: Any, mode: str) -> Any:
    return torch.div(a.float(), b.float(), rounding_mode=mode).double()


def test_floor_division_of_every_pair() -> None:
    column = tensor(values=[[number] for number in NUMBERS])
    check_op(DIVIDE, column, tensor(values=NUMBERS), "floor", oracle=in_f32)


def test_floor_division_of_infinities_is_not_a_number() -> None:
    check_op(DIVIDE, tensor(values=(INF, -INF, INF, -INF, NAN)), tensor(values=[[2.0], [-3.5]]), "floor")


def test_floor_division_keeps_what_rounding_would_lift() -> None:
    """1 / 0.1 rounds to 10 in f32, but 0.1 is a little more than a tenth: the floor is 9."""
    tenths = np.arange(1, 200, dtype=np.float32) / np.float32(10)
    check_op(DIVIDE, tensor(values=np.arange(1.0, 200.0)), tensor(values=tenths), "floor")
    check_op(DIVIDE, tensor(values=(1.0, -1.0, 0.6, 0.9)), tensor(values=(0.1, 0.1, 0.2, 0.3)), "floor")


def test_floor_division_of_random_numbers() -> None:
    random = np.random.default_rng(0)
    a, b = (random.uniform(-1, 1, 500) * 10.0 ** random.integers(-3, 4, 500) for _ in range(2))
    check_op(DIVIDE, tensor(values=a), tensor(values=b), "floor")


# Refusals ---------------------------------------------------------------------------------------


def test_refusals_say_what_is_expected() -> None:
    x, out = tensor(3), ((3,),)
    refuse_op("aten.bitwise_not.default", x, out=out, match=r"takes integers or booleans; got %0:f32\[3\]")
    refuse_op("aten.bitwise_and.Tensor", x, x, out=out, match="take integers or booleans")
    refuse_op(
        "aten.exp.default", x, out=out, dtype="i32", match=r"its output must hold them; got %0:i32\[3\]"
    )
    refuse_op("aten.leaky_relu.default", x, 0.5, out=out, dtype="i32", match="takes floats")
    refuse_op("aten.pow.Tensor_Scalar", x, 2**40, out=out, dtype="i32", match="must be a whole number from 0")
    for name, *alpha in (("add", 1), ("sub", 2), ("mul",), ("remainder",), ("fmod",), ("bitwise_and",)):
        beyond = f"{2**40 * max(alpha, default=1)} does not fit into 32 bits"
        refuse_op(f"aten.{name}.Scalar", x, 2**40, *alpha, out=out, dtype="i32", match=beyond)
    refuse_op(DIVIDE, x, x, "up", out=out, match=r"must be one of \(None, 'trunc', 'floor'\), not 'up'")
    refuse_op(DIVIDE, x, x, None, out=out, dtype="i32", match="not rounded are floats")
