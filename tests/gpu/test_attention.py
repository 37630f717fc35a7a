"""Attention with and without caches: grouped heads, masks, odd widths, prefill and decode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from arguments import Leaf, Symbol, tensor, weight
from attention_cases import (
    CACHED,
    CAPACITY,
    CHUNKS,
    CUSTOM,
    DECODE,
    MASKS,
    PLAIN,
    UPDATE,
    CachedAttention,
    cached,
)
from check import NOTHING, check_op, draw_runs, each, each_float, floats, refuse_op
from int8_caches import floats_of, int8_cache, packed, unpacked
from one_operator import OneOperator

from pteron.dtypes import DType
from pteron.ops import Target
from pteron.reference.attention import custom_sdpa

pytestmark = pytest.mark.kernels

GROUPS = [(3, 3), (4, 2), (8, 2)]


# With caches ------------------------------------------------------------------------------------


@pytest.mark.long(every=15)
@pytest.mark.parametrize(("heads", "key_heads"), GROUPS)
@pytest.mark.parametrize("width", [4, 7, 64, 65, 128])
def test_prefill_and_decode(heads: int, key_heads: int, width: int, target: Target) -> None:
    arguments = (*cached(heads, key_heads, width), 1, None, 0, True, None)
    check_op(CACHED, *arguments, oracle=CachedAttention(), live=DECODE, target=target)


@pytest.mark.long(every=4)
@pytest.mark.parametrize(("width", "causal"), [(6, True), (32, False), (64, True)])
def test_long_chunks(width: int, causal: bool, target: Target) -> None:
    arguments = (*cached(4, 2, width, batch=2, capacity=142), 1, None, 0, causal, None)
    check_op(CACHED, *arguments, oracle=CachedAttention(), live=CHUNKS, target=target, tolerance=2e-5)


@pytest.mark.long
@floats
def test_long_chunks_in_float_types(dtype: str, target: Target) -> None:
    arguments = (*cached(2, 1, 32, capacity=142), 1, None, 0, True, 0.25)
    check_op(CACHED, *arguments, oracle=CachedAttention(), live=CHUNKS, dtype=dtype, target=target)


@each_float
def test_float_types(dtype: str, target: Target) -> None:
    arguments = (*cached(4, 2, 16, batch=2), 1, None, 0, True, 0.125)
    check_op(CACHED, *arguments, oracle=CachedAttention(), live=DECODE, dtype=dtype, target=target)


def test_not_causal(target: Target) -> None:
    arguments = (*cached(4, 2, 16), 1, None, 0, False, None)
    check_op(CACHED, *arguments, oracle=CachedAttention(), live=DECODE, target=target)


@each("causal", [True, False])
def test_cached_with_a_mask(causal: bool, target: Target) -> None:
    arguments = (*cached(4, 2, 16), 1, tensor("S", "C"), 0, causal, None)
    check_op(CACHED, *arguments, oracle=CachedAttention(), live=DECODE, target=target)


def test_decoding_takes_no_new_plan(target: Target) -> None:
    live = {"S": (1,), "p": tuple(range(CAPACITY))}
    arguments = (*cached(4, 2, 16), 1, None, 0, True, None)
    check_op(CACHED, *arguments, oracle=CachedAttention(), live=live, target=target, plans=1)


@pytest.mark.long
def test_a_long_context(target: Target) -> None:
    """More keys than one block of lanes holds, and scores of very different size."""
    q, kv = tensor(1, "S", 2, 8, low=-9, high=9), (tensor(1, "S", 2, 8, low=-9, high=9), tensor(1, "S", 2, 8))
    arguments = (q, *kv, weight(1, 301, 2, 8), weight(1, 301, 2, 8), Symbol("p"), 1, None, 0, True, None)
    live = {"S": (197, 1, 67, 1), "p": (0, 197, 198, 300)}
    check_op(CACHED, *arguments, oracle=CachedAttention(), live=live, target=target, tolerance=1e-4)


def test_update_cache() -> None:
    value, cache, position = tensor(2, "S", 3, 5), weight(2, 7, 3, 5), Symbol("p")
    live = {"S": (3, 1, 2, 7), "p": (0, 3, 5, 0)}
    runs = draw_runs((value, cache, position), live, "f32")
    most: dict[Leaf, Any] = {value: np.empty((2, 7, 3, 5), np.float32), cache: runs[0][cache], position: 0}
    operator = OneOperator(UPDATE, (value, cache, position), most, [((1,), DType.F32)])
    expected = runs[0][cache].copy()
    for run in runs:
        (out,) = operator.run(run)
        np.testing.assert_array_equal(out, [0])
        start = run[position]
        expected[:, start : start + run[value].shape[1]] = run[value]
        np.testing.assert_array_equal(operator.state(cache), expected)
    operator.states.reset()
    np.testing.assert_array_equal(operator.state(cache), runs[0][cache])
    operator.close()


def test_update_of_an_int8_cache() -> None:
    """Codes and scales are those of the model, also of zeros and of what is no number."""
    value, cache, position = tensor(2, "S", 3, 44), int8_cache(np.zeros((2, 7, 3, 44))), Symbol("p")
    live = {"S": (3, 1, 2, 7), "p": (0, 3, 5, 0)}
    runs = draw_runs((value, cache, position), live, "f32")
    most: dict[Leaf, Any] = {value: np.empty((2, 7, 3, 44), np.float32), cache: runs[0][cache], position: 0}
    operator = OneOperator(UPDATE, (value, cache, position), most, [((1,), DType.F32)])
    for run in runs:
        run[value][0, 0, 0], run[value][0, 0, 1, 5] = 0, 1e30
        operator.run(run)
        start, steps = run[position], run[value].shape[1]
        found, expected = unpacked(operator.state(cache)), unpacked(packed(run[value]))
        np.testing.assert_allclose(found[:, start : start + steps], expected, rtol=1e-6)
    for bad in (np.nan, np.inf):
        runs[0][value][1, 1, 2, 40] = bad
        operator.run(runs[0])
        found = unpacked(operator.state(cache))
        assert np.isnan(found[1, 1, 2, 40])
        assert np.isfinite(found[1, 1, 2, :32]).all()
    operator.close()


# Without caches ---------------------------------------------------------------------------------


@each_float
@each(("heads", "key_heads"), GROUPS, every=3)
@each("causal", [True, False])
def test_custom_sdpa(heads: int, key_heads: int, causal: bool, dtype: str, target: Target) -> None:
    keys = (tensor(2, CAPACITY, key_heads, 9), tensor(2, CAPACITY, key_heads, 9))
    arguments = (tensor(2, "S", heads, 9), *keys, Symbol("p"), None, 0, causal, None)
    check_op(CUSTOM, *arguments, live=DECODE, dtype=dtype, target=target)


def test_custom_sdpa_of_int8_caches(target: Target) -> None:
    keys = [int8_cache(np.random.default_rng(n).uniform(-3, 3, (2, CAPACITY, 2, 36))) for n in range(2)]

    def oracle(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        return custom_sdpa(q, floats_of(k), floats_of(v), *rest)

    arguments = (tensor(2, "S", 4, 36), *keys, Symbol("p"), None, 0, True, None)
    check_op(CUSTOM, *arguments, oracle=oracle, live=DECODE, target=target)


@pytest.mark.parametrize("mask", [("S", CAPACITY), (1, CAPACITY), (2, 1, "S", CAPACITY)])
def test_custom_sdpa_with_a_mask(mask: tuple[int | str, ...], target: Target) -> None:
    keys = (tensor(2, CAPACITY, 2, 9), tensor(2, CAPACITY, 2, 9))
    arguments = (tensor(2, "S", 4, 9), *keys, Symbol("p"), tensor(*mask), 0, False, 0.5)
    check_op(CUSTOM, *arguments, live=DECODE, target=target)


@each("width", [4, 7, 64, 65])
@each(("heads", "key_heads"), GROUPS, every=3)
def test_sdpa(heads: int, key_heads: int, width: int, target: Target) -> None:
    keys = (tensor(2, key_heads, "T", width), tensor(2, key_heads, "T", width))
    check_op(PLAIN, tensor(2, heads, "S", width), *keys, None, None, target=target)


@each("mask", MASKS)
def test_sdpa_with_a_broadcast_mask(mask: tuple[int | str, ...], target: Target) -> None:
    arguments = (tensor(2, 3, "S", 5), tensor(2, 3, "T", 5), tensor(2, 3, "T", 5), tensor(*mask), 0.7)
    check_op(PLAIN, *arguments, target=target)


@pytest.mark.long(every=6)
@pytest.mark.parametrize("mask", MASKS)
def test_sdpa_of_many_queries_with_a_mask(mask: tuple[int | str, ...], target: Target) -> None:
    arguments = (tensor(2, 3, "S", 32), tensor(2, 3, "T", 32), tensor(2, 3, "T", 32), tensor(*mask), 0.2)
    live = {"S": (37, 9, 64), "T": (5, 70, 32)}
    check_op(PLAIN, *arguments, live=live, target=target)


def test_more_batches_than_an_axis_of_workgroups(target: Target) -> None:
    arguments = (tensor(9, 3, "S", 32), tensor(9, 3, 40, 32), tensor(9, 3, 40, 32), None, None)
    narrow = replace(target, workgroups_max=8, broadcasts=False)  # uniform arrays need copies, 500 workgroups
    check_op(PLAIN, *arguments, live={"S": (37, 5)}, target=narrow)


def test_no_queries(target: Target) -> None:
    arguments = (tensor(2, 3, "S", 32), tensor(2, 3, 7, 32), tensor(2, 3, 7, 32), None, None)
    check_op(PLAIN, *arguments, live=NOTHING, target=target)


@each("mask_dtype", ["f32", "bool"])
def test_sdpa_with_hidden_keys(mask_dtype: str, target: Target) -> None:
    shown = np.tril(np.ones((5, 7), bool), 1)
    values = shown if mask_dtype == "bool" else np.where(shown, 0.0, -np.inf)
    mask = tensor(values=values, dtype=mask_dtype)
    arguments = (tensor(2, 3, 5, 8), tensor(2, 3, 7, 8), tensor(2, 3, 7, 8), mask, None)
    check_op(PLAIN, *arguments, target=target)


@pytest.mark.long(every=2)
@floats
def test_sdpa_in_float_types(dtype: str, target: Target) -> None:
    arguments = (tensor(1, 2, "S", 16), tensor(1, 2, "T", 16), tensor(1, 2, "T", 16), tensor("S", "T"), None)
    check_op(PLAIN, *arguments, dtype=dtype, target=target)


# Refusals ---------------------------------------------------------------------------------------


def test_refusals_with_caches() -> None:
    q, k = tensor(1, 3, 4, 8), tensor(1, 3, 2, 8)
    caches, others = ((weight(1, 7, heads, 8), weight(1, 7, heads, 8)) for heads in (2, 3))
    rest = (1, None, 0, True, None)
    out = ((1, 3, 4, 8),)
    beyond = "positions 5 to 8 exceed the cache's capacity 7"
    flat = (tensor(3, 4, 8), k, k, *caches, 0)
    odd = (tensor(1, 3, 3, 8), k, k, *caches, 0)
    refuse_op(CACHED, q, k, k, *caches, 5, *rest, out=out, match=beyond)
    refuse_op(CACHED, *flat, *rest, out=((3, 4, 8),), match=r"rank 4; got .*\[3, 4, 8\]")
    refuse_op(CACHED, q, k, k, *others, 0, *rest, out=out, match=r"second dim only; got .*\[1, 3, 2, 8\]")
    refuse_op(CACHED, *odd, *rest, out=((1, 3, 3, 8),), match=r"multiple of key heads; got .*\[1, 3, 3, 8\]")


def test_refusals_without_caches() -> None:
    q, k, wide = tensor(1, 4, 3, 8), tensor(1, 2, 3, 8), tensor(1, 4, 3, 9)
    out = ((1, 4, 3, 8),)
    refuse_op(CUSTOM, q, q, q, 1, None, 0, True, None, out=out, match="positions 1 to 5 exceed the 4 keys")
    refuse_op(PLAIN, q, wide, wide, None, None, out=out, match=r"one width; got .*\[1, 4, 3, 9\]")
    refuse_op(PLAIN, q, k, k, tensor(2, 3), None, out=out, match=r"must broadcast")


def test_refusals_of_what_would_be_read_past_its_end() -> None:
    q, k = tensor(1, 5, 2, 8), tensor(1, 5, 2, 8)
    caches, short = (weight(1, 13, 2, 8), weight(1, 13, 2, 8)), weight(1, 12, 2, 8)
    rest, out = (1, None, 0, True, None), ((1, 5, 2, 8),)
    one = tensor(1, 1, 2, 8)
    refuse_op(CACHED, q, one, one, *caches, 12, *rest, out=out, match=r"same steps; got .*\[1, 1, 2, 8\]")
    refuse_op(CACHED, q, k, one, *caches, 0, *rest, out=out, match="keys and values must have one shape")
    refuse_op(CACHED, q, k, k, caches[0], short, 0, *rest, out=out, match="both caches must have one shape")
    many = tensor(2, 5, 2, 8)
    out = ((2, 5, 2, 8),)
    refuse_op(CACHED, many, k, k, *caches, 0, *rest, out=out, match="one batch size")
    refuse_op(CUSTOM, many, k, k, 0, None, 0, True, None, out=out, match="one batch size")
    refuse_op(PLAIN, many, k, k, None, None, out=out, match=r"one batch size; got .*\[2, 5, 2, 8\]")
    refuse_op(
        PLAIN, k, k, tensor(1, 5, 1, 8), None, None, out=out, match="keys and values must have one shape"
    )


def test_refusals_of_heads_without_elements() -> None:
    x = tensor(1, 1, 9, 0)
    refuse_op(PLAIN, x, x, x, None, None, out=((1, 1, 9, 0),), match="at least one element wide")


def test_refusals_of_masks() -> None:
    x, out = tensor(1, 2, 3, 8), ((1, 2, 3, 8),)
    expected = r"mask must broadcast to \[batch, heads, steps, keys\] = \[1, 2, 3, 3\]; got "
    refuse_op(PLAIN, x, x, x, tensor(3, 4), None, out=out, match=expected)
    refuse_op(PLAIN, x, x, x, tensor(2, 2, 3, 3), None, out=out, match=expected)
    refuse_op(PLAIN, x, x, x, tensor(1, 1, 1, 3, 3), None, out=out, match=expected)
    refuse_op(PLAIN, x, x, x, tensor(3, 3, dtype="i32"), None, out=out, match="floats or booleans")


def test_a_live_position_beyond_the_cache() -> None:
    arguments = (*cached(2, 2, 4), 1, None, 0, True, None)
    live = {"S": (1,), "p": (0, CAPACITY)}
    refuse_op(CACHED, *arguments, live=live, out=((1, 1, 2, 4),), match="exceed the cache's capacity 23")
