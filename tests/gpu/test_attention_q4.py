"""Attention between products with 4-bit weights against float64: in three launches, or by the parts' own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arguments import tensor, weight
from attention_block import BLOCK, CAPACITY, block, check
from attention_cases import RING, RING_WINDOW
from check import floats, refuse_op
from small_graphs import run

from pteron import Device
from pteron.ops import Target
from pteron.ops.rewrite import REWRITES
from pteron.plan import collect
from pteron.wgsl import Kernel, Module, compose

pytestmark = pytest.mark.kernels

OURS = ("linear_rope_sdpa", "attention_linear")
FORMS = ["neighbours", "halves", "pairs"]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Kernel]:
    """The kernels of the plans that a test makes."""
    kernels: list[Kernel] = []

    def composed(kernel: Kernel) -> Module:
        kernels.append(kernel)
        return compose(kernel)

    monkeypatch.setattr(collect, "compose", composed)
    return kernels


@pytest.fixture
def few(own_subgroups: Target, launched: list[Kernel]) -> Iterator[Target]:
    """A target with subgroups, and workgroups so small that attention is in splits at once; rotations must be
    part of a product there."""
    yield replace(own_subgroups, invocations_max=64)
    assert any("q_out" in kernel.operands for kernel in launched)


def merges(launched: list[Kernel]) -> bool:
    """Whether splits were brought together on the way into a product."""
    return any(kernel.name == "q4_digits" and "parts" in kernel.operands for kernel in launched)


SHAPES = [(1, 1, 32), (4, 2, 64), (3, 1, 96), (8, 1, 32), (6, 2, 128), (5, 5, 8)]
shapes = pytest.mark.parametrize(("heads", "key_heads", "head_width"), SHAPES)


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("batch", [1, 2])
def test_by_its_parts(form: str, batch: int, target: Target) -> None:
    key_heads = 4 if form == "pairs" else 2
    residual = tensor(batch, "S", 13)
    check(target, block(form, 4, key_heads, batch=batch, output=13, residual=residual))


@pytest.mark.long(every=30)
@pytest.mark.parametrize("form", FORMS)
@shapes
def test_every_form(form: str, heads: int, key_heads: int, head_width: int, few: Target) -> None:
    check(few, block(form, heads, heads if form == "pairs" else key_heads, head_width))


@pytest.mark.long
@shapes
@pytest.mark.parametrize("batch", [1, 2])
def test_the_last_product(
    heads: int, key_heads: int, head_width: int, batch: int, few: Target, launched: list[Kernel]
) -> None:
    residual = tensor(batch, "S", 67)
    arguments = block(
        "halves", heads, key_heads, head_width, batch, output=67, residual=residual, biases=True
    )
    # Wide heads would have more splits than a product takes, in workgroups as small as those.
    check(replace(few, invocations_max=128) if head_width > 64 else few, arguments)
    assert merges(launched)


OPTIONS: list[dict[str, Any]] = [
    {"norm": False},
    {"biases": True},
    {"output": 13},
    {"output": 64, "biases": True, "norm": False},
    {"output": 13, "causal": False, "scale": 0.3},
    {"output": 13, "softmax": (4, 5.0, None, weight(4, low=0, high=1))},
    {"output": 13, "softmax": (4, None, weight(4), None)},
    {"output": 13, "residual": tensor("S", 13)},
    {"depth": 32, "output": 13},
    {"depth": 1000, "output": 13},
    {"int8": ("first", "last"), "output": 13, "residual": tensor(1, "S", 13)},
    {"int8": ("first", "last"), "output": 13, "biases": True, "norm": False, "least": 0.01},
    {"int8": ("first",), "output": 13, "depth": 1000},
    {"int8": ("last",), "output": 13, "depth": 2080},
]


@pytest.mark.long(every=24)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_with_and_without(options: dict[str, Any], few: Target) -> None:
    check(few, block("neighbours", **options))


INT8: list[dict[str, Any]] = [{"group": 32}, {"group": 64, "batch": 2}, {"group": 128}, {"group": 256}]


@pytest.mark.long(every=12)
@pytest.mark.parametrize("options", INT8, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_int8(form: str, options: dict[str, Any], few: Target, launched: list[Kernel]) -> None:
    residual, key_heads = tensor(options.get("batch", 1), "S", 67), 4 if form == "pairs" else 2
    sizes: dict[str, Any] = {"key_heads": key_heads, "width": 64, "depth": 256, "output": 67}
    check(few, block(form, int8=("first", "last"), residual=residual, **sizes, **options))
    assert merges(launched)


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_int8_by_its_parts(form: str, target: Target) -> None:
    key_heads, residual = 4 if form == "pairs" else 2, tensor(1, "S", 13)
    check(target, block(form, 4, key_heads, int8=("first", "last"), output=13, residual=residual))


def test_int8_decodes_without_launches_of_its_own(few: Target, launched: list[Kernel]) -> None:
    arguments = block("halves", int8=("first", "last"), output=13, residual=tensor(1, "S", 13))
    check(few, arguments, live={"S": (1,), "p": tuple(range(CAPACITY))}, plans=1)
    assert {kernel.name for kernel in launched} == {"q4_digits", "attention_decode"}


@pytest.mark.long
@pytest.mark.parametrize("int8", [(), ("first", "last")])
def test_normed_heads_merge_all_the_same(
    int8: tuple[str, ...], own_subgroups: Target, launched: list[Kernel]
) -> None:
    target = replace(own_subgroups, invocations_max=64)
    check(target, block("halves", head_norms=True, int8=int8, output=13, residual=tensor(1, "S", 13)))
    assert merges(launched)
    assert "rope_norm" in {kernel.name for kernel in launched}


@pytest.mark.long(every=6)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("int8_caches", [False, True])
def test_rings(form: str, int8_caches: bool, few: Target) -> None:
    """Caches of 23 rows over 106 positions."""
    options: dict[str, Any] = {
        "output": 13,
        "softmax": (RING_WINDOW, None, None, None),
        "int8_caches": int8_caches,
    }
    arguments = block(form, 4, 4 if form == "pairs" else 2, positions=120, **options)
    check(few, arguments, live=RING, rows=120, tolerance=5e-3 if int8_caches else 3e-5)


@pytest.mark.long(every=20)
@pytest.mark.parametrize("form", FORMS)
@shapes
def test_int8_caches(form: str, heads: int, key_heads: int, head_width: int, few: Target) -> None:
    key_heads = heads if form == "pairs" else key_heads
    check(few, block(form, heads, key_heads, head_width, int8_caches=True), tolerance=5e-3)


@pytest.mark.long(every=2)
@pytest.mark.parametrize("head_norms", [False, True])
def test_int8_caches_by_their_parts(head_norms: bool, target: Target) -> None:
    residual = tensor(2, "S", 13)
    options: dict[str, Any] = {
        "head_norms": head_norms,
        "output": 13,
        "residual": residual,
        "int8_caches": True,
    }
    check(target, block("halves", 4, 2, batch=2, **options), tolerance=5e-3)


def test_int8_caches_take_one_more_kernel(few: Target, launched: list[Kernel]) -> None:
    arguments = block("halves", output=13, residual=tensor(1, "S", 13), int8_caches=True)
    live = {"S": (1,), "p": tuple(range(CAPACITY))}
    check(few, arguments, live=live, plans=1, tolerance=5e-3)
    assert {kernel.name for kernel in launched} == {"q4_digits", "write_int8", "attention_decode"}


def test_a_mask(few: Target, launched: list[Kernel]) -> None:
    live = {"S": (5, 1, 1), "p": (0, 5, 6), "C": (5, 6, 7)}
    check(few, block("halves", mask=tensor("S", "C"), causal=False, output=13), live=live)
    assert merges(launched)


@pytest.mark.long(every=2)
@floats
def test_float_types(dtype: str, few: Target) -> None:
    residual = tensor(1, "S", 13)
    tolerance = 3e-5 if dtype == "f32" else 2e-2
    check(few, block("halves", output=13, residual=residual), dtype=dtype, tolerance=tolerance)


# Before, at and after the ends of buckets; the last product merges up to 16 splits.
POSITIONS = (0, 126, 127, 128, 254, 255, 256, 511, 512, 1023, 1024, 1100)


@pytest.mark.long
def test_ends_of_buckets(own_subgroups: Target, launched: list[Kernel]) -> None:
    target = replace(own_subgroups, invocations_max=256)
    arguments = block("neighbours", 4, 1, 32, capacity=1101, output=13, residual=tensor(1, "S", 13))
    check(target, arguments, live={"S": (1,), "p": POSITIONS}, plans=4)
    assert merges(launched)


def test_decoding_takes_one_plan(few: Target) -> None:
    arguments = block("halves", output=13, residual=tensor(1, "S", 13))
    check(few, arguments, live={"S": (1,), "p": tuple(range(CAPACITY))}, plans=1)


def test_a_device_of_few_buffers(own_subgroups: Target, launched: list[Kernel]) -> None:
    """Biases are a ninth buffer: rotations are launches of their own where eight are all."""
    check(replace(own_subgroups, buffers_max=8), block("halves", biases=True))
    assert "rope" in {kernel.name for kernel in launched}


def test_a_table_that_is_no_constant(own_subgroups: Target, launched: list[Kernel]) -> None:
    cosines, sines = tensor(CAPACITY, 32, low=-1, high=1), tensor(CAPACITY, 32, low=-1, high=1)
    arguments = list(block("halves"))
    arguments[12:14] = cosines, sines
    live = {"S": (4, 1, 2), "p": (0, 4, 5)}
    check(replace(own_subgroups, buffers_max=9), tuple(arguments), live=live)
    assert "rope" not in {kernel.name for kernel in launched}
    launched.clear()
    check(replace(own_subgroups, buffers_max=8), tuple(arguments), live=live)
    assert "rope" in {kernel.name for kernel in launched}


def test_what_is_refused() -> None:
    live = {"S": (1,), "p": (0,), "e": (1,)}
    arguments = list(block("halves"))
    arguments[16] = weight(1, CAPACITY, 1, 32)
    refuse_op(BLOCK, *arguments, match="columns of their caches", live=live, out=((1, 1, 4, 32),))
    arguments = list(block("halves", output=13, residual=tensor(1, "S", 14)))
    refuse_op(BLOCK, *arguments, match="do not broadcast together", live=live, out=((1, 1, 14),))


MODELS = ["tiny_llama_q4", "tiny_llama_q4_fp16", "tiny_llama_q4_full", "tiny_llama_8da4w"]


@pytest.mark.long(every=4)
@pytest.mark.parametrize("name", MODELS)
def test_a_model(name: str, models: Path, device: Device, few: Target) -> None:
    """With all rewrites, and without ours: the same logits, in fewer launches."""
    path = models / f"{name}.pte"
    with_them, fewer = run(list(REWRITES), path, device, few)
    for off in (OURS, *((name,) for name in OURS)):
        without, more = run([other for other in REWRITES if other not in off], path, device, few)
        # A short context is split only where the product that follows merges the splits.
        assert fewer < more or (fewer == more and off == ("attention_linear",)), off
        for a, b in zip(with_them, without, strict=True):
            atol = 1e-5 if name != "tiny_llama_q4_fp16" else 1e-2
            np.testing.assert_allclose(a, b, atol=atol, err_msg=str(off))
