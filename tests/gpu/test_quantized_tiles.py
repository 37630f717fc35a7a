"""Tiles of products with 4-bit weights for many rows: every tile, split or whole, against float64."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from arguments import tensor, weight
from check import check_op, each
from fused_cases import check as check_fused
from kernel_files import kernel
from quantized_cases import DYNAMIC, LINEAR, packed, sums

from pteron import Device
from pteron.families.quantized import tiled_q4
from pteron.ops import Target, tile_table
from pteron.ops.tiles import PART_DEPTH_MAX, Tile, choose
from pteron.wgsl import compose

pytestmark = pytest.mark.kernels

ROWS = (5, 16, 17, 64, 65, 127, 128, 129, 257)
FLOAT_TILES, INT8_TILES = (tile_table.TILES[name] for name in ("q4_tiled", "q4_int8"))
# That no product chooses, for kernels are more general than the choice.
MORE = (Tile(4, 8, 4, 8, 32), Tile(16, 8, 16, 16))
MORE_INT8 = (Tile(8, 8, 8, 8, 64, is_int8=True),)
TILES = [
    pytest.param(name, tile, id=f"{name}-{tile.height}x{tile.width}-{tile.tall}x{tile.wide}x{tile.step}")
    for name, tiles in (("q4_tiled", (*FLOAT_TILES, *MORE)), ("q4_int8", (*INT8_TILES, *MORE_INT8)))
    for tile in tiles
]


@pytest.fixture
def hardware(device: Device) -> Target:
    return replace(device.target, is_cpu=False)


def factors(columns: int, depth: int, group: int, exact: bool = False) -> tuple[Any, ...]:
    """Packed weights and their scales, small enough for outputs of about one."""
    groups, padded = -(-depth // group), -(-columns // 4) * 4
    small = 0.25 / np.sqrt(depth)
    scales = weight(groups, padded, low=0.1 * small, high=small)
    if exact:
        powers = 2.0 ** np.random.default_rng(2).integers(-9, -6, (groups, padded))
        scales = weight(values=powers.astype(np.float32))
    return weight(values=packed(columns, depth), dtype="u8"), scales


def check_floats(
    rows: tuple[int, ...], columns: int, depth: int, group: int, target: Target, **options: Any
) -> None:
    bias = weight(-(-columns // 4) * 4)
    check_op(
        LINEAR,
        *(tensor("M", depth, low=-1, high=1), *factors(columns, depth, group), group, bias),
        live={"M": rows},
        target=target,
        **options,
    )


def check_int8(
    rows: tuple[int, ...], columns: int, depth: int, group: int, target: Target, exact: bool = False
) -> None:
    """Where all scales are powers of two, every sum is exact, so that nothing but equality will do."""
    x_scales = tensor("M", low=2.0**-7, high=2.0**-7)  # no quotient is rounded to another step
    weights, scales = factors(columns, depth, group, exact)
    x = tensor("M", depth, low=-1, high=1)
    zeros = tensor("M", dtype="i8", low=-128, high=127)
    check_op(
        DYNAMIC,
        *(x, x_scales, zeros, weights, sums(columns, depth, group), scales, group, None),
        live={"M": rows},
        target=target,
        tolerance=1e-12 if exact else 1e-5,
    )


def with_tile(monkeypatch: pytest.MonkeyPatch, tile: Tile, parts: int) -> None:
    """Products of every size use this tile and this number of parts."""
    monkeypatch.setattr(tiled_q4, "choose", lambda *_: (tile, parts))


# Every tile -------------------------------------------------------------------------------------


@pytest.mark.long(every=14)
@pytest.mark.parametrize(("name", "tile"), TILES)
def test_a_tile(name: str, tile: Tile, hardware: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row and some columns more than one tile has, three groups deep, in a folded grid."""
    with_tile(monkeypatch, tile, 1)
    folded = replace(hardware, workgroups_max=9)
    check = check_floats if name == "q4_tiled" else check_int8
    check((tile.height + 1, 5), tile.width + 3, 192, 64, folded)


@pytest.mark.long(every=18)
@pytest.mark.parametrize(("name", "tile"), TILES)
def test_a_tile_of_quads(name: str, tile: Tile, hardware: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with whole fours of columns, in two parts that are merged."""
    with_tile(monkeypatch, tile, 2)
    check = check_floats if name == "q4_tiled" else check_int8
    check((tile.height + 1, 5), tile.width + 4, 192, 64, hardware)


@pytest.mark.long(every=6)
@pytest.mark.parametrize("tile", FLOAT_TILES, ids=str)
def test_gates(tile: Tile, hardware: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    with_tile(monkeypatch, tile, 1)
    columns = tile.width // 2 + 4
    check_fused(hardware, 96, columns, columns, gated=True, biases=True, live={"M": (tile.height + 1, 5)})


@pytest.mark.long(every=4)
@pytest.mark.parametrize("columns", [36, 35])
@pytest.mark.parametrize("parts", [1, 2])
def test_gates_of_parts(columns: int, parts: int, hardware: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    with_tile(monkeypatch, Tile(4, 8, 4, 8), parts)
    check_fused(hardware, 96, columns, columns, gated=True, biases=True, live={"M": (17, 5)})


@pytest.mark.long(every=2)
@pytest.mark.parametrize("tiles", [FLOAT_TILES, INT8_TILES], ids=["float", "int8"])
def test_parts_that_differ(
    tiles: tuple[Tile, ...], hardware: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five groups split into three parts, the last one shorter, and more workgroups than needed."""
    with_tile(monkeypatch, tiles[0], 3)
    check = check_floats if tiles is FLOAT_TILES else check_int8
    check((21, 5), 131, 320, 64, replace(hardware, workgroups_max=7))


@pytest.mark.parametrize(("name", "tile"), TILES)
def test_a_tile_takes_the_workgroup_memory_that_it_says(name: str, tile: Tile) -> None:
    module = compose(kernel(name, **tile.declarations))
    arrays = re.findall(r"var<workgroup> \w+: array<vec4<\w+>, ([^>]+)>", module.source)
    plain = [re.sub(r"(\d)u", r"\1", size).replace("/", "//") for size in arrays]
    assert 16 * sum(eval(size, {}, dict(module.constants)) for size in plain) == tile.workgroup_bytes
    assert module.constants["WORKGROUP"] == tile.down * tile.across <= 256
    assert tile.across % (32 // min(4, tile.down)) == 0


# Shapes -----------------------------------------------------------------------------------------


def test_rows(hardware: Target) -> None:
    check_floats(ROWS, 133, 64, 32, hardware)


def test_rows_of_int8(hardware: Target) -> None:
    check_int8(ROWS, 133, 64, 32, hardware)


@pytest.mark.long(every=2)
@pytest.mark.parametrize(("group", "depth"), [(32, 100), (64, 320), (128, 132), (256, 516)])
def test_depths_that_are_no_steps(group: int, depth: int, hardware: Target) -> None:
    check_floats((33, 7), 67, depth, group, hardware)


@each("group", [32, 64, 96, 128, 256], every=3)
def test_int8_is_exact(group: int, target: Target) -> None:
    check_int8((33, 20), 67, 2 * group, group, target, exact=True)


@pytest.mark.long(every=4)
@pytest.mark.parametrize(("group", "depth"), [(24, 72), (64, 100), (4096, 4096)])
def test_int8_in_floats(group: int, depth: int, hardware: Target) -> None:
    """Groups that end within a step, that are cut short, or whose sums could be too large."""
    check_int8((9, 6), 13, depth, group, hardware)


def test_sums_of_another_shape_are_not_read(hardware: Target) -> None:
    """Exporters that pack a shared weight twice leave fewer sums than groups."""
    weights, scales = factors(13, 64, 32)
    x, zeros = tensor("M", 64, low=-1, high=1), tensor("M", dtype="i8", low=-9, high=9)
    few = weight(1, 16, dtype="i32", low=100, high=200)
    arguments = (x, tensor("M", low=2.0**-7, high=2.0**-7), zeros, weights, few, scales, 32, None)
    check_op(DYNAMIC, *arguments, live={"M": (9, 6)}, target=hardware, tolerance=1e-5)


def test_f16_storage(hardware: Target) -> None:
    check_floats((65, 5), 67, 96, 32, hardware, dtype="f16", tolerance=1e-3)


def test_a_deep_product(hardware: Target) -> None:
    depth = 3 * PART_DEPTH_MAX
    check_floats((6,), 5, depth, 256, hardware)


def test_many_workgroups(hardware: Target) -> None:
    """More than one axis of a grid has."""
    tile, parts = choose(FLOAT_TILES, hardware, 5, 8_400_003, 32, 32)
    assert parts * tile.count(5, 8_400_003) > 65_535
    check_floats((5,), 40_009, 32, 32, replace(hardware, workgroups_max=101))


# The choice -------------------------------------------------------------------------------------


@pytest.mark.parametrize("tiles", [FLOAT_TILES, INT8_TILES], ids=["float", "int8"])
@pytest.mark.parametrize("bytes_max", [16384, 32768, 49152])
def test_tiles_fit_the_workgroup_memory(tiles: tuple[Tile, ...], bytes_max: int) -> None:
    target = Target(is_cpu=False, workgroup_bytes_max=bytes_max)
    for rows in (*ROWS, 512, 1024, 4096):
        for columns in (1, 512, 2048, 8192, 128_256):
            for depth in (32, 2048, 8192):
                tile, parts = choose(tiles, target, rows, columns, depth, 32)
                assert tile.workgroup_bytes <= bytes_max
                assert 1 <= parts <= max(1, depth // tile.step)


@pytest.mark.long(every=2)
@pytest.mark.parametrize("name", ["q4_tiled", "q4_int8"])
def test_sixteen_kilobytes(name: str, hardware: Target) -> None:
    small = replace(hardware, workgroup_bytes_max=16384)
    check = check_floats if name == "q4_tiled" else check_int8
    check((129, 40), 130, 64, 64, small)


def test_few_tiles_are_split_along_k(hardware: Target) -> None:
    assert choose(FLOAT_TILES, hardware, 70, 40, 2048, 64)[1] > 1
    check_floats((70, 20), 40, 2048, 64, hardware)
    check_int8((70, 20), 40, 2048, 64, hardware)
