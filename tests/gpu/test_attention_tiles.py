"""Attention of many queries by tiles of every size, and which of them a device gets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from arguments import tensor
from attention_cases import CACHED, CHUNKS, PLAIN, CachedAttention, cached
from check import check_op, each

from pteron import Device
from pteron.families.attention import kernels
from pteron.families.attention.layouts import TILES, Tiles
from pteron.ops import Target

pytestmark = pytest.mark.kernels

HARDWARE = Target(is_cpu=False, invocations_max=256, workgroup_bytes_max=16384)


@pytest.mark.long(every=16)
@pytest.mark.parametrize("tiles", TILES, ids=str)
@pytest.mark.parametrize(("heads", "key_heads", "head_width"), [(4, 2, 20), (3, 3, 32), (10, 2, 64)])
def test_every_size(
    tiles: Tiles,
    heads: int,
    key_heads: int,
    head_width: int,
    device: Device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = replace(device.target, is_cpu=False)
    if tiles.bytes_needed(head_width) > target.workgroup_bytes_max:
        pytest.skip(f"{device.adapter} has too little workgroup memory")
    monkeypatch.setattr(kernels, "TILES", (tiles,))
    arguments = (*cached(heads, key_heads, head_width, batch=2, capacity=142), 1, None, 0, True, None)
    check_op(CACHED, *arguments, oracle=CachedAttention(), live=CHUNKS, target=target, tolerance=2e-5)


def test_by_subgroups(
    subgroups: Device,
    width: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tiles = Tiles(16, 4 * min(width, 16))
    monkeypatch.setattr(kernels, "TILES", (tiles,))
    monkeypatch.setattr(Target, "check_runs_on", lambda *_: None)
    target = replace(subgroups.target, is_cpu=False, subgroup_size=width)
    assert tiles.on(target).by_subgroups
    arguments = (tensor(2, 3, "S", 32), tensor(2, 3, "T", 32), tensor(2, 3, "T", 32), tensor("S", "T"), 0.2)
    live = {"S": (37, 9, 64), "T": (5, 70, 32)}
    check_op(PLAIN, *arguments, live=live, target=target)


@each(
    ("room", "head_width", "expected"),
    [
        (49152, 64, Tiles(64, 64)),
        (32768, 64, Tiles(64, 32)),
        (16384, 64, Tiles(32, 16)),
        (16384, 16, Tiles(64, 32)),
        (49152, 128, Tiles(32, 32)),
        (16384, 128, None),
        (16384, 256, None),
    ],
)
def test_tiles_fit_the_workgroup_memory(room: int, head_width: int, expected: Tiles | None) -> None:
    found = next((tiles for tiles in TILES if tiles.bytes_needed(head_width) <= room), None)
    assert found == expected


def test_subgroups_must_span_a_tile() -> None:
    assert Tiles(64, 64).on(replace(HARDWARE, subgroup_size=32)).by_subgroups
    assert Tiles(64, 64).on(replace(HARDWARE, subgroup_size=16)).by_subgroups
    assert not Tiles(64, 64).on(replace(HARDWARE, subgroup_size=8)).by_subgroups
    assert not Tiles(64, 64).on(HARDWARE).by_subgroups
