"""The accuracy of sums: every reduction keeps to the bound that lib/sums.wgsl states, on data that long sums
are bad at."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from arguments import Argument, Array, tensor, weight
from check import draw_runs
from one_operator import OneOperator

from pteron.dtypes import DType
from pteron.ops import Target

UNIT = 2.0**-24  # what rounding an f32 is off by, relatively
SIZES = (1, 1021, 1024, 16_385, 128_256, 1 << 20)


def steady(size: int) -> Array:
    """Numbers that a long sum rounds the same way again and again."""
    return np.full(size, 0.1, np.float32)


def remote(size: int) -> Array:
    """A large mean and a little noise."""
    return np.random.default_rng(size).normal(1000, 1, size).astype(np.float32)


def alternating(size: int) -> Array:
    """Magnitudes from 1e-3 to 1e4, of both signs."""
    at = np.arange(size)
    return ((1 - 2 * (at % 2)) * 10.0 ** (at % 8 - 3.0)).astype(np.float32)


adversarial = pytest.mark.parametrize("data", [steady, remote, alternating])
sizes = pytest.mark.parametrize("size", SIZES)


def bound(size: int) -> float:
    """The stated bound of a sum, relative to the sum of its magnitudes."""
    return (4 * math.log2(size) + 32) * UNIT


def run(name: str, *arguments: Argument, shapes: list[tuple[int, ...]], target: Target) -> list[Array]:
    """The outputs of one call, in float64."""
    (values,) = draw_runs(arguments, {}, "f32")
    operator = OneOperator(name, arguments, values, [(shape, DType.F32) for shape in shapes], target)
    try:
        return [array.astype(np.float64) for array in operator.run(values)]
    finally:
        operator.close()


@adversarial
@sizes
def test_sums_and_means(data: Any, size: int, target: Target) -> None:
    values = data(size)
    exact = values.astype(np.float64)
    allowed = bound(size) * np.abs(exact).sum()
    (total,) = run(
        "aten.sum.dim_IntList", tensor(values=values), [0], False, None, shapes=[()], target=target
    )
    assert abs(total - exact.sum()) <= allowed
    (mean,) = run("aten.mean.dim", tensor(values=values), [0], False, None, shapes=[()], target=target)
    assert abs(mean - exact.mean()) <= (allowed / size) * (1 + 2 * UNIT)


@pytest.mark.long(every=2)
@adversarial
@sizes
def test_layer_norm(data: Any, size: int, target: Target) -> None:
    values = data(size)
    exact = values.astype(np.float64)
    name = "aten.native_layer_norm.default"
    shapes: list[tuple[int, ...]] = [(1, size), (1, 1), (1, 1)]
    outputs = run(name, tensor(values=[values]), [size], None, None, 1e-5, shapes=shapes, target=target)
    out, mean, rstd = (array.reshape(-1) for array in outputs)
    off_center = (bound(size) + 2 * UNIT) * np.abs(exact).mean()
    scale = 1 / math.sqrt(exact.var() + 1e-5)
    off_scale = bound(size) + 8 * UNIT + (off_center * scale) ** 2
    expected = (exact - exact.mean()) * scale
    assert abs(mean - exact.mean()) <= off_center
    assert abs(rstd - scale) <= off_scale * scale
    assert np.all(np.abs(out - expected) <= off_center * scale + off_scale * np.abs(expected) * 2)


@adversarial
@sizes
def test_rms_norm(data: Any, size: int, target: Target) -> None:
    values = data(size)
    exact = values.astype(np.float64)
    arguments = (tensor(values=[values]), weight(values=np.ones(size)), 1e-5)
    (out,) = run("et_vk.rms_norm.default", *arguments, shapes=[(1, size)], target=target)
    expected = exact / math.sqrt((exact * exact).mean() + 1e-5)
    np.testing.assert_allclose(out[0], expected, rtol=bound(size) + 8 * UNIT)


@adversarial
@sizes
def test_softmax(data: Any, size: int, target: Target) -> None:
    values = data(size)
    (out,) = run(
        "aten._log_softmax.default", tensor(values=values), 0, False, shapes=[(size,)], target=target
    )
    expected = torch.log_softmax(torch.from_numpy(values.astype(np.float64)), 0).numpy()
    allowed = bound(size) + 32 * UNIT + 2 * UNIT * np.abs(expected)  # exp and log are off too
    assert np.all(np.abs(out - expected) <= allowed)


@adversarial
@pytest.mark.parametrize("size", [1, 1021, 16_385, 128_256])
def test_products(data: Any, size: int, target: Target) -> None:
    """One invocation adds in blocks of 64, blocks in parts of 4096, parts in blocks of 64: at most 64
    additions each. Lanes add every 256th product, then merge."""
    values = data(size)
    arguments = (tensor(values=[values]), weight(values=np.full((1, size), 0.1)), None)
    (out,) = run("aten.linear.default", *arguments, shapes=[(1, 1)], target=target)
    products = values.astype(np.float64) * float(np.float32(0.1))
    additions = 3 * 65 if target.is_cpu else size / 256 + 10
    assert abs(out.item() - products.sum()) <= additions * UNIT * np.abs(products).sum()


def test_layer_norm_of_a_hidden_state(target: Target) -> None:
    """Rows as a language model's: a mean many times the spread."""
    values = np.random.default_rng(3).normal(30, 0.5, (1, 8, 1024)).astype(np.float32)
    shapes: list[tuple[int, ...]] = [(1, 8, 1024), (1, 8, 1), (1, 8, 1)]
    name = "aten.native_layer_norm.default"
    out, *_ = run(name, tensor(values=values), [1024], None, None, 1e-5, shapes=shapes, target=target)
    exact = values.astype(np.float64)
    expected = (exact - exact.mean(-1, keepdims=True)) / np.sqrt(exact.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(out, expected, rtol=2e-5, atol=2e-5)
