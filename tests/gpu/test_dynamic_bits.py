"""All code paths quantize a float to the same int8: a separate launch, the prologue of products of few rows,
inside tiles, or with precomputed scales and zero points. The weights select one element each, so the output
shows the int8 values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from arguments import Array, tensor, weight
from check import draw_runs, each
from fused_cases import FUSED_INT8
from one_operator import OneOperator
from quantized_cases import DYNAMIC

from pteron.dtypes import DType
from pteron.families.norm.norm import REGISTERS_MIN
from pteron.ops import Target

pytestmark = pytest.mark.kernels

QPARAMS = "torchao.choose_qparams_affine.default"
PICKED = 61
DEPTHS = [64, 100, 288, 2080]  # whole groups or not; the last is two turns of those that hold a row


def rows_of(depth: int, count: int) -> Array:
    """Rows of several sizes, of both signs and of one."""
    x = np.random.default_rng(depth).normal(size=(count, depth)).astype(np.float32)
    x *= np.float32(10) ** np.arange(-3, count - 3, dtype=np.float32)[:, None]
    x[1] = np.abs(x[1])
    x[-1] = -np.abs(x[-1])
    return x


def picked(depth: int) -> Array:
    """Which element each column is."""
    return np.arange(PICKED) * 37 % depth


def expected(x: Array, columns: Any) -> tuple[Array, Array, Array]:
    """Steps of some columns less their zero points times scales; scales and zero points: in f32, as IEEE 754
    rounds."""
    low, high = np.minimum(x.min(-1), 0), np.maximum(x.max(-1), 0)
    scale = np.maximum((high - low) / np.float32(255), np.finfo(np.float32).smallest_normal)
    zero = np.clip(-128 - np.rint(low / scale), -128, 127).astype(np.float32)
    steps = np.clip(np.rint(x / scale[:, None]) + zero[:, None], -128, 127) - zero[:, None]
    return (steps * scale[:, None])[:, columns], scale, zero


def factors(depth: int) -> tuple[Any, Any, Any]:
    """Weights, their sums and their scales."""
    nibbles = np.full((PICKED, -(-depth // 8) * 8), 8, np.uint8)
    nibbles[np.arange(PICKED), picked(depth)] = 9
    bytes = nibbles[:, ::2] | nibbles[:, 1::2] << 4
    scales = np.ones((-(-depth // 32), -(-PICKED // 4) * 4), np.float32)
    known = np.zeros((-(-depth // 32), -(-PICKED // 8) * 8), np.int32)
    known[picked(depth) // 32, np.arange(PICKED)] = 1
    return weight(values=bytes, dtype="u8"), weight(values=known, dtype="i32"), weight(values=scales)


def run(name: str, arguments: list[Any], outputs: list[Any], target: Target) -> list[Array]:
    """What an operator gives."""
    (drawn,) = draw_runs(arguments, {}, "f32")
    operator = OneOperator(name, arguments, drawn, outputs, target)
    found = operator.run(drawn)
    operator.close()
    return found


def fused(x: Array, target: Target, gain: Array | None = None) -> Array:
    """The product of x as int8, normed where there is a gain."""
    weights, known, scales = factors(x.shape[1])
    norm = (None, 0.0) if gain is None else (weight(values=gain), 1e-5)
    arguments = [tensor(values=x), *norm, [weights], [scales], None, 32, [known], None, None, False]
    (found,) = run(FUSED_INT8, arguments, [((len(x), PICKED), DType.F32)], target)
    return found


def in_parts(x: Array, target: Target) -> tuple[Array, Array, Array]:
    """The same by scales and zero points that a call before found, and these."""
    weights, known, scales = factors(x.shape[1])
    choice = [tensor(values=x), "ASYMMETRIC", [1, x.shape[1]], None, -128, 127, None, None, None, False]
    scale, zero = run(QPARAMS, choice, [((len(x),), DType.F32), ((len(x),), DType.I8)], target)
    given = tensor(values=scale), tensor(values=zero, dtype="i8")
    arguments = [tensor(values=x), *given, weights, known, scales, 32, None]
    (found,) = run(DYNAMIC, arguments, [((len(x), PICKED), DType.F32)], target)
    return found, scale, zero


def check(x: Array, target: Target) -> None:
    wanted, scales, zeros = expected(x, picked(x.shape[1]))
    np.testing.assert_array_equal(fused(x, target), wanted)
    found, scale, zero = in_parts(x, target)
    np.testing.assert_array_equal(scale, scales)
    np.testing.assert_array_equal(zero, zeros)
    np.testing.assert_array_equal(found, wanted)


@each("depth", DEPTHS, every=3)
@each("count", [3, 7])
def test_every_route(depth: int, count: int, target: Target) -> None:
    check(rows_of(depth, count), target)


@pytest.mark.long(every=4)
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("count", [3, 7])
def test_by_subgroups(depth: int, count: int, own_subgroups: Target) -> None:
    check(rows_of(depth, count), own_subgroups)


def test_quotients_are_rounded_as_ieee_wants_it(target: Target) -> None:
    """Scales and zero points of many pairs of numbers, every other one symmetric: its zero is at a tie."""
    random = np.random.default_rng(0)
    count = 20_000
    ends = 10.0 ** random.uniform(-30, 30, count) * random.uniform(0.5, 1, (2, count))
    ends[1, ::2] = ends[0, ::2]
    x = (ends * np.array([[-1], [1]])).T.astype(np.float32)
    _, scales, zeros = expected(x, (0, 1))
    choice = [tensor(values=x), "ASYMMETRIC", [1, 2], None, -128, 127, None, None, None, False]
    scale, zero = run(QPARAMS, choice, [((count,), DType.F32), ((count,), DType.I8)], target)
    np.testing.assert_array_equal(scale, scales)
    np.testing.assert_array_equal(zero, zeros)


@pytest.mark.long(every=8)
@pytest.mark.parametrize("invocations", [64, 256])
@pytest.mark.parametrize("depth", [96, 1024, 2080, 4128])
def test_norms_of_few_rows_and_of_many(depth: int, invocations: int, own_subgroups: Target) -> None:
    """Sums have a fixed order: the bits do not depend on how many elements of a row an invocation holds."""
    target = replace(own_subgroups, invocations_max=invocations)
    x = rows_of(depth, 7)
    gain = np.random.default_rng(1).uniform(0.5, 2, depth).astype(np.float32)
    many = fused(x, target, gain)
    for first, end in ((0, 4), (4, 7), (2, 3)):
        few = fused(x[first:end], target, gain)
        np.testing.assert_array_equal(few, many[first:end])
        if depth >= REGISTERS_MIN:
            np.testing.assert_array_equal(few, fused(normed(x[first:end], gain, target), target))


def normed(x: Array, gain: Array, target: Target) -> Array:
    """What a norm of its own makes of x."""
    arguments = [tensor(values=x), weight(values=gain), 1e-5]
    (found,) = run("et_vk.rms_norm.default", arguments, [(x.shape, DType.F32)], target)
    return found
