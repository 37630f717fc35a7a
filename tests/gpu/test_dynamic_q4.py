"""Products of int8 activations with 4-bit weights and what surrounds them, against float64 from the same
int8: by one launch after that which makes int8, or by the parts' own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arguments import tensor, weight
from bits import assert_same_bits
from check import check_op
from fused_cases import FUSED_INT8, factors, fused_int8
from quantized_cases import sums
from small_graphs import run

from pteron import Device
from pteron.families.quantized import tiled_q4
from pteron.ops import Target
from pteron.ops.rewrite import REWRITES
from pteron.ops.tile_table import TILES
from pteron.ops.tiles import Tile

pytestmark = pytest.mark.kernels

LIVE = {"M": (33, 1, 4, 2, 3, 7)}


def check(target: Target, depth: int, *columns: int, group: int = 32, **options: Any) -> None:
    norm = (weight(depth, low=0.5, high=2), 1e-5) if options.pop("norm", False) else (None, 0.0)
    biases = [weight(-(-count // 4) * 4) for count in columns] if options.pop("biases", False) else None
    residual, gated = options.pop("residual", None), options.pop("gated", False)
    weights, scales = factors(depth, *columns, group=group)
    known = [sums(count, depth, group) for count in columns]
    arguments = (*norm, weights, scales, biases, group, known, options.pop("least", None), residual, gated)
    options = {"live": LIVE, "tolerance": 2e-6, **options}
    check_op(FUSED_INT8, tensor(1, "M", depth), *arguments, oracle=fused_int8, target=target, **options)


CASES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((96, 67), {"norm": True}),
    ((96, 64, 8, 36), {"norm": True}),
    ((64, 5, 66), {"biases": True}),
    ((64, 68, 68), {"norm": True, "gated": True, "biases": True}),
    ((64, 67, 67), {"gated": True}),
    ((96, 68), {"residual": tensor("M", 68), "biases": True}),
    ((100, 12), {"norm": True}),  # no whole words
    ((64, 12), {"least": 0.5, "tolerance": 1e-5}),  # zero points far larger than what is left without them
    ((2080, 8), {"norm": True}),  # two turns of a row's lanes, one of them short
]
cases = pytest.mark.parametrize(("sizes", "options"), CASES, ids=str)


@pytest.mark.long(every=9)
@cases
def test_fused(sizes: tuple[int, ...], options: dict[str, Any], target: Target) -> None:
    check(target, *sizes, **options)


@pytest.mark.long(every=10)
@cases
def test_fused_by_subgroups(sizes: tuple[int, ...], options: dict[str, Any], few: Target) -> None:
    check(few, *sizes, **options)


@pytest.mark.long(every=4)
@pytest.mark.parametrize("group", [32, 64, 128, 256])
def test_groups(group: int, target: Target) -> None:
    check(target, 2 * group, 20, 20, group=group, norm=True, gated=True, live={"M": (13, 5)})


@pytest.mark.long(every=5)
@pytest.mark.parametrize("tile", TILES["q4_int8"], ids=str)
def test_gates_of_every_tile(tile: Tile, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    hardware = replace(device.target, is_cpu=False)
    monkeypatch.setattr(tiled_q4, "choose", lambda *_: (tile, 1))
    columns = tile.width // 2 + 4
    check(hardware, 128, columns, columns, group=64, gated=True, live={"M": (tile.height + 1, 5)})


def test_more_outputs_than_a_launch_binds(target: Target) -> None:
    """Three outputs with biases, which are merged."""
    check(target, 64, 12, 8, 4, biases=True, norm=True, live={"M": (9, 5)})


def test_rows_of_zeros_and_of_one_sign(target: Target) -> None:
    rows = np.zeros((1, 7, 64), np.float32)
    rows[0, 1:] = np.random.default_rng(0).uniform(-1, 1, (6, 64))
    rows[0, 2], rows[0, 3] = np.abs(rows[0, 2]), -np.abs(rows[0, 3])
    weights, scales = factors(64, 12)
    arguments = (None, 0.0, weights, scales, None, 32, [sums(12, 64, 32)], None, None, False)
    check_op(FUSED_INT8, tensor(values=rows), *arguments, oracle=fused_int8, target=target, tolerance=2e-6)


def test_a_model_by_subgroups(models: Path, device: Device, few: Target) -> None:
    path = models / "tiny_llama_8da4w.pte"
    with_it, fewer = run(list(REWRITES), path, device, few)
    without, more = run([other for other in REWRITES if other != "linear_dynamic"], path, device, few)
    assert fewer < more
    for a, b in zip(with_it, without, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_a_model_to_the_last_bit(models: Path, device: Device, few: Target) -> None:
    """Norms apart, which have a launch of another order where rows are as short as here."""
    path = models / "tiny_llama_8da4w.pte"
    splitting = replace(few, invocations_max=64)
    with_them, _ = run([name for name in REWRITES if name != "norm_linear"], path, device, splitting)
    without, _ = run([], path, device, splitting)
    for a, b in zip(with_them, without, strict=True):
        assert_same_bits(a, b, device)
