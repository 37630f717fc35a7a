"""Attention of few queries by subgroups: every bucket of contexts, heads that share keys or do not, masks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from arguments import Symbol, tensor, weight
from attention_cases import CACHED, DECODE, MASKS, PLAIN, CachedAttention, cached
from check import check_op, each, floats

from pteron import Device
from pteron.families.attention.layouts import Decode, Tiles
from pteron.ops import Target
from pteron.plan import collect
from pteron.reference.attention import sdpa
from pteron.wgsl import Kernel, Module, compose

pytestmark = pytest.mark.kernels

INF = float("inf")


SHUFFLES = {
    "subgroupShuffleXor(value, apart)": "exchanged(vec4(value), (invocation % SUBGROUP) ^ apart).x",
    "subgroupShuffleXor(values, apart)": "exchanged(values, (invocation % SUBGROUP) ^ apart)",
    "subgroupShuffle(value, lane)": "exchanged(vec4(value), lane).x",
}
EMULATION = """
var<private> invocation: u32;
var<workgroup> exchange: array<vec4<f32>, WORKGROUP>;
fn exchanged(values: vec4<f32>, lane: u32) -> vec4<f32> {
  workgroupBarrier();
  exchange[invocation] = values;
  workgroupBarrier();
  return exchange[invocation / SUBGROUP * SUBGROUP + lane];
}
"""


def emulated(kernel: Kernel) -> Module:
    """The kernel with subgroups of any width, made of workgroup memory."""
    module = compose(kernel)
    source = re.sub(r"(fn main\(.*?\{)", r"\1 invocation = local;", module.source, flags=re.DOTALL)
    for shuffle, exchange in SHUFFLES.items():
        assert shuffle in source
        source = source.replace(shuffle, exchange)
    return replace(module, source=source + EMULATION)


@pytest.fixture(params=["as they are", "of 32"])
def few(
    request: pytest.FixtureRequest,
    subgroups: Device,
    width: int,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Target]:
    """A target with subgroups, of the width that the device has or of that of most GPUs, on which the kernel
    must be launched."""
    is_emulated = request.param == "of 32"
    launched = set()

    def composed(kernel: Kernel) -> Module:
        launched.add(kernel.name)
        has_shuffles = is_emulated and kernel.name == "attention_decode"
        return emulated(kernel) if has_shuffles else compose(kernel)

    monkeypatch.setattr(collect, "compose", composed)
    monkeypatch.setattr(Target, "check_runs_on", lambda *_: None)
    monkeypatch.setattr(Tiles, "on", lambda tiles, _: tiles)
    room = subgroups.target.workgroup_bytes_max - 16 * 512 * is_emulated
    yield replace(
        subgroups.target,
        is_cpu=False,
        subgroup_size=32 if is_emulated else width,
        workgroup_bytes_max=room,
    )
    assert "attention_decode" in launched


@pytest.mark.long(every=16)
@pytest.mark.parametrize(
    ("heads", "key_heads", "head_width"),
    [(3, 3, 4), (4, 2, 8), (8, 2, 24), (3, 1, 64), (8, 2, 64), (10, 2, 80), (2, 2, 128), (4, 1, 128)],
)
def test_heads_and_widths(heads: int, key_heads: int, head_width: int, few: Target) -> None:
    arguments = (*cached(heads, key_heads, head_width, batch=2), 1, None, 0, True, None)
    check_op(CACHED, *arguments, oracle=CachedAttention(), live=DECODE, target=few, tolerance=2e-5)


@pytest.mark.long(every=4)
@floats
def test_float_types(dtype: str, few: Target) -> None:
    arguments = (*cached(4, 2, 16, batch=2), 1, None, 0, True, 0.125)
    check_op(CACHED, *arguments, oracle=CachedAttention(), live=DECODE, dtype=dtype, target=few)


# Before, at and after the ends of buckets, at odd positions between them, and with up to eight steps.
POSITIONS = (
    0, 1, 126, 127, 128, 129, 255, 256, 300, 504, 511,
    512, 513, 1021, 1024, 2044, 2047, 2048, 4095, 4096, 5000,
)  # fmt: skip
STEPS = (1, 2, 1, 1, 1, 3, 1, 1, 8, 8, 1, 1, 1, 7, 1, 4, 1, 1, 1, 1, 5)


@pytest.mark.long
@pytest.mark.parametrize("causal", [True, False])
def test_long_contexts(causal: bool, few: Target) -> None:
    arguments = (*cached(4, 1, 8, capacity=5005), 1, None, 0, causal, None)
    live = {"S": STEPS, "p": POSITIONS}
    check_op(CACHED, *arguments, oracle=CachedAttention(), live=live, target=few, tolerance=3e-5)


@pytest.mark.long(every=2)
def test_decoding_plans_once_for_a_bucket(few: Target) -> None:
    positions = (*range(100, 140), 510, 511, 512, 513, 2046, 2047, 2048, 2049)
    arguments = (*cached(4, 1, 8, capacity=5005), 1, None, 0, True, None)
    live = {"S": (1,), "p": positions}
    check_op(CACHED, *arguments, oracle=CachedAttention(), live=live, target=few, plans=5, tolerance=3e-5)


@pytest.mark.long(every=12)
@pytest.mark.parametrize("mask", MASKS)
def test_broadcast_masks(mask: tuple[int | str, ...], few: Target) -> None:
    arguments = (tensor(2, 3, "S", 32), tensor(2, 3, "T", 32), tensor(2, 3, "T", 32), tensor(*mask), 0.2)
    live = {"S": (7, 1, 8), "T": (5, 70, 200)}
    check_op(PLAIN, *arguments, live=live, target=few)


@pytest.mark.long(every=9)
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("mask_dtype", ["f32", "bool"])
def test_masks_that_hide_whole_splits_and_rows(mask_dtype: str, steps: int, few: Target) -> None:
    shown = np.ones((2, 1, steps, 192), bool)
    shown[0, :, :, :100] = False
    shown[0, :, -1, 64:128] = False
    shown[1, :, 0] = False
    values = shown if mask_dtype == "bool" else np.where(shown, 0.5, -INF)
    arguments = (tensor(2, 2, steps, 8), tensor(2, 2, 192, 8), tensor(2, 2, 192, 8))
    check_op(PLAIN, *arguments, tensor(values=values, dtype=mask_dtype), None, target=few)


@pytest.mark.long(every=4)
@pytest.mark.parametrize("lowest", [-1e9, -3.4028235e38])
def test_very_negative_masks_are_not_infinite(lowest: float, few: Target) -> None:
    values = np.full((1, 192), lowest)
    values[0, 150:] = -INF

    def in_f32(q: Any, k: Any, v: Any, mask: Any, scale: Any) -> Any:
        return sdpa(q.float(), k.float(), v.float(), mask.float(), scale).double()

    arguments = (tensor(1, 2, 1, 8), tensor(1, 2, 192, 8), tensor(1, 2, 192, 8))
    check_op(PLAIN, *arguments, tensor(values=values), None, oracle=in_f32, target=few)


def test_scores_of_very_different_size(few: Target) -> None:
    q, k = tensor(1, "S", 2, 8, low=-9, high=9), tensor(1, "S", 2, 8, low=-9, high=9)
    caches = (weight(1, 301, 2, 8, low=-9, high=9), weight(1, 301, 2, 8))
    arguments = (q, k, tensor(1, "S", 2, 8), *caches, Symbol("p"), 1, None, 0, True, None)
    live = {"S": (1, 4), "p": (300, 200)}
    check_op(CACHED, *arguments, oracle=CachedAttention(), live=live, target=few, tolerance=1e-4)


@pytest.mark.usefixtures("slots_of_any_size")
@pytest.mark.long(every=2)
def test_more_key_heads_than_fit_at_once(few: Target) -> None:
    q, k, v = tensor(3, 8, 2, 8), tensor(3, 4, 70, 8), tensor(3, 4, 70, 8)
    for narrow in (replace(few, binding_bytes_max=8192), replace(few, workgroups_max=4)):
        check_op(PLAIN, q, k, v, None, None, target=narrow)


# The layout ---------------------------------------------------------------------------------------

GPU = Target(
    is_cpu=False, subgroup_size=32, invocations_max=1024, workgroup_bytes_max=49152, binding_bytes_max=1 << 31
)


@each(
    ("context", "layout"),
    [
        (1, Decode(32, 8, 256, 4, 1)),
        (512, Decode(32, 8, 256, 4, 1)),
        (513, Decode(32, 8, 256, 4, 8)),
        (1024, Decode(32, 8, 256, 4, 8)),
        (1025, Decode(32, 8, 256, 8, 8)),
        (2048, Decode(32, 8, 256, 8, 8)),
        (2049, Decode(32, 8, 256, 8, 16)),
        (8000, Decode(32, 8, 256, 8, 32)),
        (100_000, Decode(32, 8, 256, 8, 64)),
    ],
)
def test_a_split_is_loaded_at_once(context: int, layout: Decode) -> None:
    assert Decode.of(64, context, 1, GPU) == layout


@pytest.mark.parametrize(("workgroups", "splits"), [(8, 8), (32, 8), (33, 7), (128, 2), (129, 1), (1000, 1)])
def test_a_busy_device_needs_no_splits(workgroups: int, splits: int) -> None:
    unroll = 8 if splits > 1 else 4
    assert Decode.of(64, 2000, workgroups, GPU) == Decode(32, 8, 256, unroll, splits)


def test_several_splits_where_others_bring_them_together() -> None:
    """Of a short context too; longer ones have as many as ever."""
    for context in (1, 128):
        assert Decode.of(64, context, 1, GPU, are_merged=True) == Decode(32, 8, 256, 1, 4)
    assert Decode.of(64, 512, 1, GPU, are_merged=True) == Decode(32, 8, 256, 4, 4)
    for context in (513, 100_000):
        assert Decode.of(64, context, 1, GPU, are_merged=True) == Decode.of(64, context, 1, GPU)


def test_small_devices() -> None:
    assert Decode.of(64, 100, 1, replace(GPU, workgroup_bytes_max=8192)) == Decode(32, 8, 128, 4, 1)
    assert Decode.of(64, 100, 1, replace(GPU, invocations_max=128)) == Decode(32, 8, 128, 4, 1)
    assert Decode.of(256, 100, 1, replace(GPU, workgroup_bytes_max=4096)) is None
    assert Decode.of(64, 100, 1, replace(GPU, subgroup_size=0)) is None
    assert Decode.of(260, 100, 1, GPU) is None
