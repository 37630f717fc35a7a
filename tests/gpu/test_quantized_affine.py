"""Quantising and dequantising: to the bit what PyTorch's operators answer in float32."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from affine_cases import (
    DECOMPOSED,
    EXACT,
    RANGES,
    TYPES,
    dequantize_affine,
    eager,
    quantize_affine,
)
from arguments import tensor, weight
from check import NOTHING, check_op, each, each_float, refuse_op

from pteron.ops import Target

quantized = pytest.mark.parametrize("kind", TYPES)


def ties(scale: Any, count: int = 701) -> Any:
    """Multiples of half a scale, in float32, with the numbers beside them and the extremes of the type."""
    halves = (np.arange(count) - count // 2) * np.float32(scale) / np.float32(2)
    halves = halves.astype(np.float32)
    beside = [np.nextafter(halves, np.float32(end)) for end in (-np.inf, np.inf)]
    largest = np.finfo(np.float32).max
    return np.concatenate(
        [halves, *beside, np.array([largest, -largest, np.inf, -np.inf, 0.0, -0.0], np.float32)]
    )


def check(name: str, *arguments: Any, **options: Any) -> None:
    """To the bit what PyTorch's operator gives; the text among the arguments is the type of the integers."""
    base, _, overload = name.partition(".")
    kind = next(value for value in arguments if isinstance(value, str))
    own = {"out": kind} if base.startswith("quantize") else {"tolerance": EXACT}
    check_op(f"{DECOMPOSED}{base}.{overload or 'default'}", *arguments, oracle=eager(base), **(own | options))


# One pair of parameters -------------------------------------------------------------------------


@quantized
@pytest.mark.parametrize(("scale", "zero"), [(0.05, 0), (0.1, 5), (0.02, -13), (0.037, 3), (1e-30, 0)])
def test_quantize_per_tensor(kind: str, scale: float, zero: int, target: Target) -> None:
    for x in (tensor("S", 3, "T"), tensor(values=ties(scale))):
        check("quantize_per_tensor", x, scale, zero, *RANGES[kind], kind, target=target)


def test_quantize_to_whole_32_bits(target: Target) -> None:
    """Up to the largest float32 below 2^31: the next would be another number."""
    values = [0.0, 7.5, 2147483520.0, 2147483648.0, 1e20, np.inf, -2147483648.0, -1e20, -np.inf]
    x = tensor(values=np.array(values, np.float32))
    bounds = -(1 << 31), (1 << 31) - 1

    def clamped(x: Any, *_: Any) -> Any:
        return np.clip(np.round(np.asarray(x, np.float64)), -(2.0**31), 2147483520.0).astype(np.int64)

    for low, high in (bounds, (-5, bounds[1])):
        oracle = partial(lambda low, x, *_: torch.tensor(np.maximum(clamped(x), low)).int(), low)
        name = f"{DECOMPOSED}quantize_per_tensor.default"
        check_op(name, x, 1.0, 0, low, high, "i32", oracle=oracle, out="i32", target=target)


@each_float
def test_quantize_per_tensor_in_float_types(dtype: str, target: Target) -> None:
    arguments = (tensor(2, "S", 13), 0.0219, -3, -128, 127, "i8")
    check("quantize_per_tensor", *arguments, dtype=dtype, target=target)


@quantized
@pytest.mark.parametrize("kind_of_scale", ["f32", "f64"])
@pytest.mark.parametrize("is_constant", [True, False])
def test_quantize_per_tensor_by_tensors(
    kind: str, kind_of_scale: str, is_constant: bool, target: Target
) -> None:
    make = weight if is_constant else tensor
    scale = make(values=np.array([0.0173], np.float32), dtype=kind_of_scale)
    zero = make(values=[3], dtype="i64" if kind_of_scale == "f64" else "i32")
    for x in (tensor("S", 5), tensor(values=ties(0.0173))):
        check("quantize_per_tensor.tensor", x, scale, zero, *RANGES[kind], kind, target=target)


@quantized
def test_dequantize_per_tensor(kind: str, target: Target) -> None:
    low, high = RANGES[kind]
    x = tensor("S", 3, "T", dtype=kind, low=low, high=high)
    tensors = weight(values=[0.0517]), weight(values=[-7], dtype="i32")
    check("dequantize_per_tensor", x, 0.0517, -7, low, high, kind, None, target=target)
    check("dequantize_per_tensor.tensor", x, *tensors, low, high, kind, None, target=target)


def test_dequantize_to_f16(target: Target) -> None:
    x = tensor("S", 14, dtype="i8", low=-128, high=127)
    rest = (-128, 127, "i8", ...)
    of_channels, of_tokens, of_blocks = [
        (tensor(*shape, low=0.01, high=0.1), tensor(*shape, dtype="i32", low=-9, high=9))
        for shape in ((14,), ("S", 1), ("S", 2))
    ]
    options: dict[str, Any] = {"out": "f16", "target": target, "tolerance": 1e-3}
    check("dequantize_per_tensor", x, 0.0517, -7, *rest, **options)
    check("dequantize_per_channel", x, *of_channels, 1, *rest, **options)
    check("dequantize_per_token", x, *of_tokens, *rest, **options)
    blocks = (x, [1, 7], *of_blocks, "i8", None, None, 5)
    check_op("torchao.dequantize_affine.default", *blocks, oracle=dequantize_affine, **options)


def test_none_and_many_elements(target: Target) -> None:
    """Many: more workgroups than an axis takes."""
    rest = (0.1, 0, -128, 127, "i8")
    check("quantize_per_tensor", tensor("S", 3, "T"), *rest, live=NOTHING, target=target)
    check("quantize_per_tensor", tensor(65_536, 65), *rest)


# A pair for every channel, token or block -------------------------------------------------------


@quantized
@pytest.mark.parametrize(("axis", "channels"), [(0, 5), (1, 3), (-1, 7)])
def test_per_channel(kind: str, axis: int, channels: int, target: Target) -> None:
    low, high = RANGES[kind]
    scales = weight(channels, low=0.01, high=0.1)
    zeros = weight(channels, dtype="i32", low=0, high=9)
    shape: Any = {0: (5, "S", 11), 1: ("S", 3, "T"), -1: (2, "S", 7)}[axis]
    rest = (axis, low, high, kind)
    check("quantize_per_channel", tensor(*shape), scales, zeros, *rest, target=target)
    x = tensor(*shape, dtype=kind, low=low, high=high)
    for zero_points in (zeros, None):
        check("dequantize_per_channel", x, scales, zero_points, *rest, None, target=target)


@each("scale", [0.0173, 0.1, 3.7])
def test_ties_per_channel(scale: float, target: Target) -> None:
    """Reciprocals are rounded as in PyTorch, so values half-way between two integers stay half-way."""
    x = tensor(values=np.stack([ties(scale), ties(scale)]))
    scales = tensor(values=np.array([scale, np.nextafter(np.float32(scale), np.float32(9))], np.float32))
    zeros = weight(values=[0, 3], dtype="i32")
    check("quantize_per_channel", x, scales, zeros, 0, -128, 127, "i8", target=target)


@each("kind", ["i8", "u8", "i16"])
def test_per_token(kind: str, target: Target) -> None:
    low, high = RANGES[kind]
    scales, zeros = tensor(2, "S", 1, low=0.01, high=0.1), tensor(2, "S", 1, dtype="i32", low=-9, high=9)
    rest = (scales, zeros, low, high, kind)
    check("quantize_per_token", tensor(2, "S", 13), *rest, target=target)
    x = tensor(2, "S", 13, dtype=kind, low=low, high=high)
    check("dequantize_per_token", x, *rest, None, target=target)


def test_whole_numbers_that_floats_do_not_hold(target: Target) -> None:
    """Per channel and per token, a zero point is subtracted as an integer; per tensor, as a float."""
    base = 1 << 24
    x = tensor(values=np.array([[1, 2, 3, 5], [-1, 0, 1, 7]]) + base, dtype="i32")
    rest = (-(1 << 31), (1 << 31) - 1, "i32", None)
    for name, shape, axis in (("per_channel", (2,), (0,)), ("per_token", (2, 1), ())):
        scales = weight(values=np.array([0.1, 3.0], np.float32).reshape(shape))
        zeros = weight(values=np.array([base, base + 3]).reshape(shape), dtype="i32")
        check(f"dequantize_{name}", x, scales, zeros, *axis, *rest, target=target)
    check("dequantize_per_tensor", x, 0.5, base, *rest, target=target)


def test_ties_per_token(target: Target) -> None:
    """The zero point is added before rounding, to a product that was rounded itself."""
    scale = np.float32(0.0173)
    x = tensor(values=np.stack([ties(scale), ties(scale)]))
    scales, zeros = tensor(values=[[scale], [scale]]), tensor(values=[[100], [-77]], dtype="i32")
    check("quantize_per_token", x, scales, zeros, -128, 127, "i8", target=target)


BLOCKS = [
    ((6, 8, 10), [6, 8, 10]),
    ((6, 8, 10), [1, 8, 10]),
    ((6, 8, 10), [6, 1, 10]),
    ((6, 8, 10), [1, 1, 5]),
    ((6, 8, 10), [3, 1, 2]),
    ((6, 8, 10), [2, 4, 5]),
    ((7,), [1]),
    ((), []),
    ((4, 4, 4, 4, 2, 2, 4, 4), [2, 2, 2, 2, 1, 2, 2, 2]),
]


@each(("shape", "block"), BLOCKS)
@each("kind", ["i8", "u8"])
def test_affine(shape: tuple[int, ...], block: list[int], kind: str, target: Target) -> None:
    counts = [size // along for size, along in zip(shape, block, strict=True)]
    scale, zero = tensor(*counts, low=0.01, high=0.1), tensor(*counts, dtype="i32", low=0, high=9)
    for zero_point, bounds in ((zero, (None, None)), (None, (1, 15))):
        check_op(
            "torchao.quantize_affine.default",
            *(tensor(*shape), block, scale, zero_point, kind, *bounds),
            oracle=quantize_affine,
            out=kind,
            target=target,
        )
        low, high = RANGES[kind]
        check_op(
            "torchao.dequantize_affine.default",
            *(tensor(*shape, dtype=kind, low=low, high=high), block, scale, zero_point, kind, None, None, 6),
            oracle=dequantize_affine,
            target=target,
            tolerance=EXACT,
        )


@each_float
def test_affine_of_live_rows(dtype: str, target: Target) -> None:
    scale, zero = tensor("S", 2, dtype="f32", low=0.01, high=0.1), tensor("S", 2, dtype="i32", low=0, high=9)
    check_op(
        "torchao.quantize_affine.default",
        *(tensor("S", 14), [1, 7], scale, zero, "i8", None, None),
        oracle=quantize_affine,
        out="i8",
        dtype=dtype,
        target=target,
    )


# What is refused --------------------------------------------------------------------------------


def test_refusals() -> None:
    def refuse(name: str, *arguments: Any, match: str, dtype: str = "i8") -> None:
        refuse_op(name, *arguments, match=match, dtype=dtype, out=[arguments[0].shape])

    x = tensor(2, 6, dtype="f32")
    name = f"{DECOMPOSED}quantize_per_tensor.default"
    refuse(name, x, 0.1, 0, -129, 127, "i8", match="bounds -129 to 127 must be within those of i8")
    refuse(name, x, 0.1, 0, 0, 255, "i8", match="bounds 0 to 255 must be within")
    refuse(name, x, 0.1, 0, 5, -5, "i8", match="bounds 5 to -5")
    refuse(name, x, 0.0, 0, -128, 127, "i8", match="scale 0.0 must be a number other than zero")
    refuse(name, x, 1e-45, 0, -128, 127, "i8", match="a reciprocal in f32")
    refuse(name, x, 0.1, 0, -128, 127, "i8", match="must be of integers", dtype="f32")
    back = f"{DECOMPOSED}dequantize_per_tensor.default"
    refuse(back, tensor(2, 6, dtype="i8"), 0.1, 0, -128, 127, "i8", None, match="must be of floats")
    two = weight(2, dtype="f32"), weight(2, dtype="i32")
    one = f"{DECOMPOSED}quantize_per_tensor.tensor"
    refuse(one, x, *two, -128, 127, "i8", match="1 blocks need as many scales")
    channel = f"{DECOMPOSED}quantize_per_channel.default"
    refuse(channel, x, *two, 1, -128, 127, "i8", match="6 blocks need as many scales")
    refuse(channel, x, *two, 2, -128, 127, "i8", match="out of range")
    refuse(channel, x, two[0], weight(3, dtype="i32"), 0, -128, 127, "i8", match="as many zero points")
    affine = "torchao.quantize_affine.default"
    for block in ([2], [1, 4], [0, 6], [1, 1, 6]):
        refuse(affine, x, block, *two, "i8", None, None, match="must divide x")
    scalar = tensor(dtype="f32")
    token = f"{DECOMPOSED}quantize_per_token.default"
    refuse(token, scalar, *two, -128, 127, "i8", match="a scalar has no rows")
