"""Attention over contexts of any length, and over keys that a mask hides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from arguments import Symbol, tensor, weight
from attention_cases import CACHED, PLAIN, CachedAttention
from check import check_op, each
from kernel_files import kernel

from pteron.ops import Target
from pteron.reference.attention import attend_steps_first, sdpa
from pteron.wgsl import compose

pytestmark = pytest.mark.kernels

INF = float("inf")
LENGTHS = [(keys, 64) for keys in (400, 500, 576, 1024, 2048, 8192)]
WIDTHS = [(keys, width) for keys in (500, 8192) for width in (6, 80, 128)]


# Length -----------------------------------------------------------------------------------------


@pytest.mark.long(every=12)
@pytest.mark.parametrize(("keys", "width"), LENGTHS + WIDTHS)
def test_many_keys(keys: int, width: int, target: Target) -> None:
    q, k, v = tensor(1, 2, "S", width), tensor(1, 1, keys, width), tensor(1, 1, keys, width)
    check_op(PLAIN, q, k, v, None, None, live={"S": (9, 1)}, target=target, tolerance=3e-5)


@each(("steps", "width"), [(1, 64), (9, 64), (3, 6)], every=2)
def test_many_keys_with_a_mask(steps: int, width: int, target: Target) -> None:
    q, k, v = tensor(1, 2, steps, width), tensor(1, 1, 2048, width), tensor(1, 1, 2048, width)
    mask = tensor(steps, 2048, dtype="bool")
    check_op(PLAIN, q, k, v, mask, None, target=target, tolerance=3e-5)
    check_op(PLAIN, q, k, v, tensor(steps, 2048), None, target=target, tolerance=3e-5)


@pytest.mark.long
@pytest.mark.parametrize(("width", "causal"), [(64, True), (128, False), (6, True)])
def test_prefill_and_decode_far_into_a_cache(width: int, causal: bool, target: Target) -> None:
    """The plan of a chunk and that of a step serve every position in a bucket."""
    kv = (tensor(1, "S", 1, width), tensor(1, "S", 1, width))
    caches = (weight(1, 8200, 1, width), weight(1, 8200, 1, width))
    arguments = (tensor(1, "S", 2, width), *kv, *caches, Symbol("p"), 1, None, 0, causal, None)
    positions = (0, 500, 501, 502, 600, 900, 4090, *range(4094, 4100), 8199)
    live = {"S": (11, 1, 1, 1, 11, 11, 1, *[1] * 6, 1), "p": positions}
    plans = 7 if target.subgroup_size or target.broadcasts else 4  # of buckets that are finer
    oracle = CachedAttention()
    check_op(CACHED, *arguments, oracle=oracle, live=live, target=target, plans=plans, tolerance=3e-5)


def test_more_keys_than_tiles_have_loops_for(target: Target) -> None:
    """Where the adapter would end the loops of the tiles, other kernels take over."""
    q, k, v = tensor(1, 1, 9, 128), tensor(1, 1, 9000, 128), tensor(1, 1, 9000, 128)
    check_op(PLAIN, q, k, v, None, None, target=target, tolerance=3e-5)


@pytest.mark.usefixtures("slots_of_any_size")
@each(("steps", "room"), [(33, 8192), (7, 2048)])
def test_more_queries_than_scratch_memory_holds_at_once(steps: int, room: int, target: Target) -> None:
    q, k, v = tensor(2, 4, steps, 8), tensor(2, 2, 70, 8), tensor(2, 2, 70, 8)
    target = replace(target, binding_bytes_max=room)
    check_op(PLAIN, q, k, v, None, None, target=target)


def test_no_keys(target: Target) -> None:
    q, k, v = tensor(1, 2, 3, 8), tensor(1, 2, 0, 8), tensor(1, 2, 0, 8)
    check_op(PLAIN, q, k, v, None, None, target=target)


@each(
    "name",
    [f"attention_{part}" for part in ("decode", "merge", "scores", "split", "tiled", "uniform", "values")],
)
def test_every_access_is_proven(name: str) -> None:
    assert not compose(kernel(name)).bounds_checks


# Hidden keys ------------------------------------------------------------------------------------


@each("steps", [1, 3, 9], every=2)  # in splits, in splits, in tiles
@each("width", [6, 8])
@each("mask_dtype", ["f32", "bool"])
def test_masks_that_hide_whole_splits_and_rows(
    mask_dtype: str, width: int, steps: int, target: Target
) -> None:
    """A row that is hidden completely is NaN in PyTorch, whichever kind of mask hides it."""
    shown = np.ones((2, 1, steps, 192), bool)
    shown[0, :, :, :100] = False  # the first split of 64 keys, and some of the next
    shown[0, :, -1, 64:128] = False
    shown[1, :, 0] = False
    values = shown if mask_dtype == "bool" else np.where(shown, 0.5, -INF)
    arguments = (tensor(2, 2, steps, width), tensor(2, 2, 192, width), tensor(2, 2, 192, width))
    mask = tensor(values=values, dtype=mask_dtype)
    check_op(PLAIN, *arguments, mask, None, target=target)


@each("steps", [1, 9])
@each("width", [6, 8], every=2)
@each("lowest", [-1e9, -3.4028235e38])
def test_very_negative_masks_are_not_infinite(lowest: float, width: int, steps: int, target: Target) -> None:
    """Added everywhere they leave the mean of v, as in PyTorch's f32; beside other keys, nothing."""
    values = np.full((steps, 192), lowest)
    values[steps // 2, 150:] = -INF
    values[steps // 2 + 1 :, 170:] = 0

    def in_f32(q: Any, k: Any, v: Any, mask: Any, scale: Any) -> Any:
        return sdpa(q.float(), k.float(), v.float(), mask.float(), scale).double()

    arguments = (tensor(1, 2, steps, width), tensor(1, 2, 192, width), tensor(1, 2, 192, width))
    check_op(PLAIN, *arguments, tensor(values=values), None, oracle=in_f32, target=target)


def test_a_causal_step_that_a_mask_hides(target: Target) -> None:
    """Causal and hidden together: the first query sees only itself, and the mask hides that."""
    mask = np.zeros((9, 9))
    mask[0, 0] = -INF
    kv = (tensor(1, 9, 1, 8), tensor(1, 9, 1, 8), weight(1, 9, 1, 8), weight(1, 9, 1, 8))
    arguments = (tensor(1, 9, 2, 8), *kv, 0, 1, tensor(values=mask), 0, True, None)

    def oracle(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        result = attend_steps_first(q, k, v, torch.from_numpy(mask), None, 0)
        assert torch.isnan(result[:, 0]).all()
        return result

    check_op(CACHED, *arguments, oracle=oracle, target=target)
