"""Products by matrices, with emulated matrix cores: the walk over tiles, numbers in halves, the epilogues."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from arguments import tensor, weight
from attention_cases import CACHED, CHUNKS, OPTIONED, PLAIN, CachedAttention, OptionedAttention, cached
from check import check_op
from fused_cases import check as check_fused
from measure import Measuring
from plane_cases import CLAMPED, CONVOLUTION, numbers, small
from test_quantized_tiles import check_floats

import pteron
from pteron.families.attention import kernels as attention
from pteron.families.attention.layouts import MATRIX_TILES, MatrixTiles
from pteron.families.convolution import kernels as convolution
from pteron.families.linear import product
from pteron.families.quantized import tiled_q4, tiles
from pteron.gpu import Device, matrix_check
from pteron.ops import Target, tile_table
from pteron.ops.target import EMULATED
from pteron.ops.tiles import MatrixTile, choose, matrix_tiles
from pteron.wgsl import Kernel

LINEAR, MM, BMM = (f"aten.{name}.default" for name in ("linear", "mm", "bmm"))
# Those of MATRIX_TILES that fit a software adapter's workgroup memory as floats, with smaller steps.
TILES = (
    MatrixTile(1, 1, 1, 4, 32, 3, 1.0, 0.0, 1, 0.0),
    MatrixTile(2, 2, 1, 2, 16, 3, 1.0, 0.0, 1, 0.0),
    MatrixTile(2, 1, 2, 2, 32, 3, 1.0, 0.0, 1, 0.0),
)


@pytest.fixture
def emulating(device: Device) -> Target:
    return replace(device.target, is_cpu=False, matrices=(EMULATED,))


def choose_tile(monkeypatch: pytest.MonkeyPatch, tile: MatrixTile, parts: int) -> None:
    """Let products by matrices have this tile and so many parts of k."""

    def made(_: object, target: Target, planes: tuple[int, int], *, is_along: bool = True) -> Any:
        return (replace(tile, planes=planes, is_along=is_along, bytes_of_half=4),)

    for module in (product, tiled_q4, convolution):
        monkeypatch.setattr(module, "matrix_tiles", made)
        monkeypatch.setattr(module, "choose", lambda tiles, *_, **__: (tiles[-1], parts))


def test_the_test_kernel(device: Device) -> None:
    left, right = matrix_check.FACTORS
    found = matrix_check._product(device, Kernel("pteron.gpu", "matrix_check", IS_EMULATED=True))
    assert np.array_equal(found, left @ right.T)


@pytest.mark.long(every=12)
@pytest.mark.parametrize("tile", TILES, ids=lambda tile: f"{tile.height}x{tile.width}x{tile.step}")
@pytest.mark.parametrize(("parts", "sizes"), [(1, (67, 132, 96)), (3, (19, 131, 68)), (2, (133, 68, 53))])
def test_every_tile(
    tile: MatrixTile,
    parts: int,
    sizes: tuple[int, int, int],
    emulating: Target,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The right factor along k and along its columns; sums of one part and of several."""
    choose_tile(monkeypatch, tile, parts)
    rows, columns, depth = sizes
    a, b = tensor(rows, depth, low=-1, high=1), weight(columns, depth, low=-1, high=1)
    check_op(LINEAR, a, b, weight(columns), target=emulating)
    check_op(MM, a, tensor(depth, columns, low=-1, high=1), target=emulating)
    check_op(
        BMM,
        tensor(3, rows, depth, low=-1, high=1),
        tensor(3, depth, columns, low=-1, high=1),
        target=emulating,
    )


def test_live_rows(emulating: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    choose_tile(monkeypatch, TILES[0], 1)
    live = {"M": (67, 1, 33, 16, 17, 4)}
    x, w = tensor("M", 31, low=-1, high=1), weight(67, 31, low=-1, high=1)
    check_op(LINEAR, x, w, weight(67), live=live, target=emulating)


@pytest.mark.long(every=6)
@pytest.mark.parametrize("size", [1e-6, 1e-3, 1e3, 7e4, 1e30])
def test_numbers_that_halves_do_not_hold(
    size: float, emulating: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiles of too large or too small numbers are computed from floats."""
    choose_tile(monkeypatch, TILES[0], 1)
    x, w = tensor(19, 33, low=-size, high=size), weight(67, 33, low=-1, high=1)
    check_op(LINEAR, x, w, None, target=emulating, tolerance=1e-5, atol=1e-5 * size)
    x, w = tensor(19, 33, low=-1, high=1), weight(67, 33, low=-size, high=size)
    check_op(LINEAR, x, w, None, target=emulating, tolerance=1e-5, atol=1e-5 * size)


SIZES = (1.0, 1e-3, 1e3, 1e-6, 0.0, 7e4, 1e-5, 1e30, 1e-30, 0.1)


@pytest.mark.long(every=4)
@pytest.mark.parametrize("tile", [TILES[1], replace(TILES[1], is_low_apart=False)], ids=["apart", "together"])
@pytest.mark.parametrize("parts", [1, 2])
def test_rows_and_columns_of_any_size(
    tile: MatrixTile, parts: int, emulating: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every output is as exact as the numbers of its own row and column allow: no sum cancels here."""
    choose_tile(monkeypatch, tile, parts)
    random = np.random.default_rng(4)
    sizes = np.resize(SIZES, 67)[:, None]
    bound = 8e-7 if tile.is_low_apart else 2e-5
    for rows, columns in ((sizes[:41], np.ones((67, 1))), (np.ones((41, 1)), sizes)):
        x, w = rows * random.uniform(0.1, 1, (41, 68)), columns * random.uniform(0.1, 1, (67, 68))
        check_op(LINEAR, tensor(values=x), weight(values=w), None, target=emulating, tolerance=bound, atol=0)
        factors = tensor(values=x), tensor(values=w.T)
        check_op(MM, *factors, target=emulating, tolerance=bound, atol=0)


def test_products_of_halves(emulating: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """With products="f16", both factors are rounded to halves."""
    choose_tile(monkeypatch, TILES[0], 1)
    rough = replace(emulating, products="f16")
    x, w = tensor(19, 64, low=-1, high=1), weight(67, 64, low=-1, high=1)
    check_op(LINEAR, x, w, None, target=rough, tolerance=5e-3)
    with pytest.raises(AssertionError):
        check_op(LINEAR, x, w, None, target=rough, tolerance=1e-4)


@pytest.mark.parametrize(
    ("tiles", "planes"),
    [
        (tile_table.MATRIX_TILES["matmul_matrix"], (1, 1)),
        (tile_table.MATRIX_TILES["matmul_matrix"], (2, 2)),
        (tile_table.MATRIX_TILES["q4_matrix"], (1, 1)),
        (tile_table.MATRIX_TILES["q4_matrix"], (2, 2)),
        (tile_table.MATRIX_TILES["convolution_matrix"], (1, 1)),
    ],
    ids=["dense, f16", "dense", "4 bits, f16", "4 bits", "convolutions, f16"],
)
def test_tiles_fit_workgroup_memory(tiles: tuple[MatrixTile, ...], planes: tuple[int, int]) -> None:
    """49,152 bytes are what NVIDIA's drivers allow; more hangs them."""
    large = Target(
        subgroup_size=32,
        matrices=("f16 f32 16x16x16",),
        workgroup_bytes_max=1 << 20,
        invocations_max=1024,
    )
    found = matrix_tiles(tiles, large, planes)
    assert len(found) >= 3
    assert all(tile.workgroup_bytes <= 49152 for tile in found)
    assert len(matrix_tiles(tiles, replace(large, invocations_max=64), planes)) < len(found)
    assert not matrix_tiles(tiles, replace(large, matrices=()), planes)


@pytest.mark.long(every=6)
@pytest.mark.parametrize("tile", TILES, ids=lambda tile: f"{tile.height}x{tile.width}x{tile.step}")
@pytest.mark.parametrize(("parts", "columns"), [(1, 67), (2, 68)])
def test_weights_of_4_bits(
    tile: MatrixTile, parts: int, columns: int, emulating: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A grid that is folded, and live rows."""
    choose_tile(monkeypatch, tile, parts)
    folded = replace(emulating, workgroups_max=9)
    check_floats((tile.height + 1, 16), columns, 192, 64, folded)


def test_16_rows_are_half_a_tile() -> None:
    target = Target(subgroup_size=32, matrices=("f16 f32 16x16x16",), invocations_max=1024)
    halves = matrix_tiles(tile_table.MATRIX_TILES["matmul_matrix"], target, (1, 1))
    floats = tile_table.TILES["matmul_tiled"]
    chosen = {rows: choose((*floats, *halves), target, rows, 4096, 4096, 1)[0] for rows in (15, 16)}
    assert [isinstance(tile, MatrixTile) for tile in chosen.values()] == [False, True]


def test_matrices_that_are_half_empty(
    emulating: Target, monkeypatch: pytest.MonkeyPatch, launched: set[str]
) -> None:
    """One product of halves is faster than strips for as few as 9 rows."""
    choose_tile(monkeypatch, replace(TILES[0], products=1), 1)
    halves = replace(emulating, products="f16")
    check_floats((8, 5), 68, 192, 64, halves, tolerance=5e-3)
    assert "q4_matrix" not in launched
    check_floats((9, 13), 68, 192, 64, halves, tolerance=5e-3)
    assert "q4_matrix" in launched


@pytest.mark.long(every=3)
@pytest.mark.parametrize("tile", TILES, ids=lambda tile: f"{tile.height}x{tile.width}x{tile.step}")
def test_gates(tile: MatrixTile, emulating: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    choose_tile(monkeypatch, tile, 1)
    columns = tile.width // 2 + 4
    live = {"M": (tile.height + 1, 17)}
    check_fused(emulating, 96, columns, columns, gated=True, biases=True, live=live, tolerance=2e-5)


def test_large_numbers_and_4_bits(emulating: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    choose_tile(monkeypatch, TILES[0], 2)
    monkeypatch.setattr("test_quantized_tiles.tensor", lambda *shape, **_: tensor(*shape, low=-7e4, high=7e4))
    check_floats((19, 16), 68, 192, 64, emulating, tolerance=1e-5, atol=1.0)


PLANES = {"S": (11, 5), "T": (13, 8), "N": (3, 1)}


@pytest.mark.long
@pytest.mark.parametrize(("tile", "parts"), [(TILES[0], 1), (TILES[1], 2), (TILES[2], 1)])
@pytest.mark.parametrize(
    ("window", "options"),
    [
        ((3, 3), {"padding": 1}),
        ((4, 2), {"stride": (2, 3), "padding": (1, 2), "dilation": (2, 1)}),
        ((3, 4), {"extra": (1, 0), "stride": (3, 2), "padding": (1, 2)}),
    ],
    ids=["plain", "dilated", "transposed"],
)
def test_convolutions(
    tile: MatrixTile,
    parts: int,
    window: tuple[int, int],
    options: dict[str, Any],
    emulating: Target,
    monkeypatch: pytest.MonkeyPatch,
    measuring: Measuring,
) -> None:
    """Channels that fill quads and do not; planes that are multiples of four and are not."""
    choose_tile(monkeypatch, tile, parts)
    folded = replace(emulating, workgroups_max=29)
    for channels, filters in ((5, 67), (16, 20)):
        shape = (channels, filters) if "extra" in options else (filters, channels)
        x = tensor("N", channels, "S", "T", low=-1, high=1)
        rest = numbers(**options)
        check_op(
            CONVOLUTION,
            x,
            small(*shape, *window),
            small(filters),
            *rest,
            live=PLANES,
            target=folded,
            tolerance=2e-5,
        )
    assert "convolution_matrix" in measuring.kernels
    assert parts == 1 or "convolution_merge" in measuring.kernels


@pytest.mark.long
def test_convolutions_of_planes_with_factors(
    emulating: Target, monkeypatch: pytest.MonkeyPatch, measuring: Measuring
) -> None:
    def oracle(x: Any, weights: Any, bias: Any, *rest: Any) -> Any:
        return torch.nn.functional.conv2d(x * rest[7], weights, bias, padding=1)

    choose_tile(monkeypatch, TILES[0], 1)
    for channels in (33, 64):
        x, factors = (tensor("N", channels, *plane, low=-1, high=1) for plane in (("S", "T"), (1, 1)))
        arguments = x, small(19, channels, 3, 3), small(19), *numbers(padding=1), (), factors
        options: dict[str, Any] = {"oracle": oracle, "live": PLANES, "target": emulating, "tolerance": 2e-5}
        check_op("pteron.convolution", *arguments, None, None, None, "none", **options)
    assert "convolution_matrix" in measuring.kernels


def test_convolutions_in_one_dim_with_bounds(emulating: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    choose_tile(monkeypatch, TILES[0], 1)
    arguments = tensor("N", 33, "T", low=-1, high=1), small(19, 33, 3), small(19)
    rest = [*numbers(1, padding=1, stride=2), 0.0, 1.5]
    check_op(CLAMPED, *arguments, *rest, live={"T": (61, 36, 40), "N": (3, 1, 2)}, target=emulating)


def test_convolutions_of_large_and_small_numbers(emulating: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """An infinity and a NaN stay in their windows; pixels and filters have any size."""
    choose_tile(monkeypatch, TILES[0], 1)
    random = np.random.default_rng(5)
    x, w = random.uniform(0.1, 1, (1, 8, 9, 9)), random.uniform(0.1, 1, (20, 8, 3, 3))
    strange = x * np.resize(SIZES, (9, 9))
    strange[0, 3, 4, 4], strange[0, 7, 0, 0] = np.inf, np.nan
    for source, weights in ((strange, w), (x, w * np.resize(SIZES, 20)[:, None, None, None])):
        check_op(
            CONVOLUTION,
            *(tensor(values=source), weight(values=weights), None, *numbers()),
            target=emulating,
            tolerance=2e-6,
            atol=0,
        )


# Attention -----------------------------------------------------------------------------------------

# Subgroups that share nothing, or keys and columns, or these and rows.
ATTENTION_TILES = [
    MatrixTiles(2, 1, 1, 16, 2, 2, settled=48),
    MatrixTiles(1, 2, 1, 32, 2, 2, settled=32),
    MatrixTiles(1, 2, 2, 32, 2, 2, settled=64),
]
HALF_TILE = MatrixTiles(1, 2, 1, 32, 1, 1)


@pytest.fixture
def attending(emulating: Target, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Target:
    """Let attention have a tile."""
    tile = getattr(request, "param", ATTENTION_TILES[0])
    monkeypatch.setattr(attention, "MATRIX_TILES", (tile,))
    return replace(emulating, products="f32" if tile.planes == 2 else "f16")


@pytest.mark.long(every=4)
@pytest.mark.parametrize("attending", ATTENTION_TILES, ids=str, indirect=True)
@pytest.mark.parametrize(("heads", "key_heads", "width"), [(4, 2, 32), (3, 1, 32)])
def test_attention_over_caches(
    heads: int, key_heads: int, width: int, attending: Target, measuring: Measuring
) -> None:
    arguments = (*cached(heads, key_heads, width, batch=2, capacity=142), 1, None, 0, True, None)
    check_op(CACHED, *arguments, oracle=CachedAttention(), live=CHUNKS, target=attending, tolerance=2e-5)
    assert "attention_matrix" in measuring.kernels


def test_attention_with_a_mask(attending: Target, measuring: Measuring) -> None:
    """Heads before steps; keys that are not a multiple of a tile."""
    shapes = ((2, 3, "S", 32), (2, 3, "T", 32), (2, 3, "T", 32), ("S", "T"))
    arguments = (*(tensor(*shape) for shape in shapes), 0.2)
    live = {"S": (37, 17, 64), "T": (5, 70, 32)}
    check_op(PLAIN, *arguments, live=live, target=attending, tolerance=2e-5)
    assert "attention_matrix" in measuring.kernels


@pytest.mark.long
def test_attention_with_options(attending: Target, measuring: Measuring) -> None:
    """A window, a soft cap, sinks, slopes, values of another width."""
    q, k, _, k_cache, *_, position = cached(6, 2, 16, capacity=142)
    v, v_cache = tensor(1, "S", 2, 32), weight(1, 142, 2, 32)
    options = (None, 37, 9.0, weight(6), weight(6), None)
    arguments = (q, k, v, k_cache, v_cache, position, *options)
    check_op(OPTIONED, *arguments, oracle=OptionedAttention(), live=CHUNKS, target=attending, tolerance=5e-5)
    assert "attention_matrix" in measuring.kernels


@pytest.mark.long(every=3)
@pytest.mark.parametrize(
    ("attending", "width"),
    [(MatrixTiles(1, 2, 2, 32, 1, 1), 64), (MatrixTiles(2, 1, 1, 32, 1, 1), 48), (HALF_TILE, 32)],
    indirect=["attending"],
)
def test_attention_of_halves(width: int, attending: Target, measuring: Measuring) -> None:
    """Also values with an odd number of matrices."""
    arguments = (*(tensor(2, 3, size, width, low=-1, high=1) for size in ("S", "T", "T")), None, 0.25)
    live = {"S": (37, 17), "T": (70, 32)}
    check_op(PLAIN, *arguments, live=live, target=attending, tolerance=5e-3)
    with pytest.raises(AssertionError):
        check_op(PLAIN, *arguments, live=live, target=attending, tolerance=1e-5)
    assert "attention_matrix" in measuring.kernels


@pytest.mark.long(every=6)
@pytest.mark.parametrize("index", range(3), ids=["queries", "keys", "values"])
@pytest.mark.parametrize("size", [1e-6, 7e4, 1e30])
def test_attention_to_numbers_that_halves_do_not_hold(index: int, size: float, attending: Target) -> None:
    sizes = [1.0, 1.0, 1.0]
    sizes[index] = size
    tensors = (
        tensor(1, 2, length, 16, low=0.5 * each, high=each)
        for length, each in zip((19, 35, 35), sizes, strict=True)
    )
    check_op(PLAIN, *tensors, None, 0.01 / max(size, 1), target=attending, tolerance=2e-6, atol=0)


@pytest.mark.parametrize(("planes", "key_planes"), [(1, 1), (2, 1), (2, 2)])
@pytest.mark.parametrize("width", [32, 64, 80, 96, 112, 128, 192, 256])
def test_there_are_attention_tiles_for_each_width(planes: int, key_planes: int, width: int) -> None:
    assert any(
        (tile.planes, tile.key_planes) == (planes, key_planes)
        and tile.suits(width, width)
        and tile.bytes_needed(width, width) <= 49152
        for tile in MATRIX_TILES
    )


# Models --------------------------------------------------------------------------------------------


def prompt_of(models: Path, name: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A prompt and the logits that follow it, by PyTorch."""
    if name == "tiny_llama_fp32":
        with np.load(models / f"{name}_lengths.npz") as stored:
            return stored["stream"][:31], stored["logits_prefill"][30].reshape(-1)
    with np.load(models / f"{name}.npz") as stored:
        return stored["prompt"], stored["logits_prefill"].reshape(-1)


@pytest.mark.long(every=4)
@pytest.mark.parametrize(("products", "least", "most"), [("f32", 0, 2e-5), ("f16", 5e-5, 5e-3)])
@pytest.mark.parametrize(
    ("name", "chunk", "product_kernel"),
    [("tiny_llama_fp32", 31, "matmul_matrix"), ("tiny_llama_q4_short", 16, "q4_matrix")],
)
def test_logits_of_models(
    name: str,
    chunk: int,
    product_kernel: str,
    products: str,
    least: float,
    most: float,
    models: Path,
    device: Device,
    emulating: Target,
    launched: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Errors, relative to the largest logit, are as docs/gpu-libraries.md states them; so is the choice."""
    choose_tile(monkeypatch, replace(TILES[0], is_low_apart=product_kernel == "matmul_matrix"), 1)
    monkeypatch.setitem(tiles.MATRIX_ROWS_MIN, 3, 16)
    monkeypatch.setattr(attention, "MATRIX_TILES", (MatrixTiles(2, 1, 1, 16, 1, 1), *ATTENTION_TILES))
    monkeypatch.setattr(device, "target", emulating)
    tokens, expected = prompt_of(models, name)
    with pteron.load(models / f"{name}.pte", device=device, products=products) as program:
        for first in range(0, len(tokens), chunk):
            step = tokens[None, first : first + chunk]
            (found,) = program["forward"](step, np.array([first]))
    error = np.abs(found.reshape(-1) - expected).max() / np.abs(expected).max()
    assert least <= error < most, error
    assert found.argmax() == expected.argmax()
    assert {product_kernel, "attention_matrix"} <= launched
    assert "rope" not in launched or product_kernel == "matmul_matrix"  # q4_matrix rotates its columns
