"""Matrix products of odd sizes, by the kernel for software adapters and by those for GPUs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from arguments import tensor, weight
from check import NOTHING, check_op, each, each_float, floats, refuse_op
from measure import Measuring

from pteron.families.linear import product, uniform
from pteron.gpu import Device
from pteron.ops import Target
from pteron.ops.row_layout import BUSY
from pteron.ops.tile_table import TILES
from pteron.ops.tiles import Tile

pytestmark = pytest.mark.kernels

ROWS = (1, 2, 3, 5, 17, 33, 67)
LINEAR, MM, BMM, ADDMM = (f"aten.{name}.default" for name in ("linear", "mm", "bmm", "addmm"))
LIVE_ROWS = {"M": (67, 1, 33, 2, 5, 3, 17, 4)}


@each(("columns", "depth"), [(1, 1), (7, 1), (1, 13), (13, 8), (67, 31), (131, 68)], every=3)
@each("bias", [True, False])
def test_linear(columns: int, depth: int, bias: bool, target: Target) -> None:
    added = weight(columns) if bias else None
    check_op(LINEAR, tensor("M", depth), weight(columns, depth), added, live=LIVE_ROWS, target=target)


@each("shape", [(7,), (1, 7), (2, "S", 7), (2, 3, "S", 7), (0, 7)])
def test_linear_of_any_rank(shape: tuple[int | str, ...], target: Target) -> None:
    check_op(LINEAR, tensor(*shape), weight(5, 7), weight(5), target=target)


@each_float
def test_linear_in_float_types(dtype: str, target: Target) -> None:
    arguments = (tensor("M", 31, low=-1, high=1), weight(13, 31, low=-1, high=1), weight(13))
    check_op(LINEAR, *arguments, live=LIVE_ROWS, dtype=dtype, target=target)


def test_linear_with_a_weight_from_the_call(target: Target) -> None:
    check_op(LINEAR, tensor("M", 7), tensor(5, 7), tensor(5), live=LIVE_ROWS, target=target)


@pytest.mark.long(every=2)
@pytest.mark.parametrize("depth", [1009, 8204])
def test_deep_products(depth: int, target: Target) -> None:
    arguments = (tensor("M", depth, low=-1, high=1), weight(3, depth, low=-1, high=1), None)
    check_op(LINEAR, *arguments, live={"M": (5, 1, 3)}, target=target, tolerance=1e-4)


@pytest.mark.usefixtures("slots_of_any_size")
@pytest.mark.long(every=4)
@pytest.mark.parametrize(("rows", "room"), [("M", 29), (1, 1), (5, 3)])
@pytest.mark.parametrize("depth", [7, 1009])
def test_a_weight_larger_than_a_binding(rows: int | str, room: int, depth: int, target: Target) -> None:
    """Bands of `room` columns each, the last one narrower."""
    small = replace(target, binding_bytes_max=room * depth * 4)
    x, added = tensor(rows, depth, low=-1, high=1), weight(67)
    live = LIVE_ROWS if rows == "M" else None
    check_op(LINEAR, x, weight(67, depth, low=-1, high=1), added, live=live, target=small, tolerance=1e-4)
    matrix = weight(depth, 67, low=-1, high=1)
    check_op(ADDMM, added, x, matrix, 0.5, -2, live=live, target=small, tolerance=1e-4)


@pytest.mark.long(every=9)
@pytest.mark.parametrize("tile", TILES["matmul_tiled"], ids=lambda tile: f"{tile.height}x{tile.width}")
def test_every_tile(tile: Tile, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quads along k and along columns, whole ones and others, sums of one part and of several."""
    hardware = replace(device.target, is_cpu=False)
    for parts, (rows, columns, depth) in ((1, (67, 132, 96)), (3, (13, 131, 68)), (3, (133, 68, 53))):
        monkeypatch.setattr(product, "choose", lambda *_, parts=parts, **__: (tile, parts))
        a, b = (tensor(rows, depth, low=-1, high=1), weight(columns, depth, low=-1, high=1))
        check_op(LINEAR, a, b, weight(columns), target=hardware)
        check_op(MM, a, tensor(depth, columns, low=-1, high=1), target=hardware)


@pytest.mark.long
@pytest.mark.parametrize("busy", [1, 1 << 12, BUSY])
@pytest.mark.parametrize(("columns", "depth"), [(67, 512), (131, 1024), (5, 260), (129, 77)])
def test_few_rows(
    busy: int, columns: int, depth: int, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One to four rows, with several columns and several quads for an invocation."""
    monkeypatch.setattr(product, "BUSY", busy)
    hardware = replace(device.target, is_cpu=False)
    x, live = tensor("M", depth, low=-1, high=1), {"M": (4, 1, 3, 2)}
    factors = x, weight(columns, depth, low=-1, high=1), weight(columns)
    for dtype, tolerance in (("f32", 2e-5), ("f16", None)):
        check_op(LINEAR, *factors, live=live, dtype=dtype, target=hardware, tolerance=tolerance)
    across = tensor(depth, columns, low=-1, high=1)
    check_op(MM, x, across, live=live, target=hardware, tolerance=2e-5)


@each("rows", ROWS, every=2)
@each(("columns", "depth"), [(1, 1), (13, 7), (67, 65)])
def test_mm(rows: int, columns: int, depth: int, target: Target) -> None:
    check_op(MM, tensor(rows, depth), tensor(depth, columns), target=target)


def test_mm_of_live_matrices(target: Target) -> None:
    check_op(MM, tensor("S", "T"), tensor("T", 5), target=target)
    check_op(MM, tensor(5, "T"), tensor("T", "S"), target=target)


def test_sums_of_nothing(target: Target) -> None:
    """No kernel reads a matrix without elements."""
    check_op(LINEAR, tensor(9, 0), weight(8, 0), weight(8), target=target)
    check_op(ADDMM, tensor(8), tensor(9, 0), tensor(0, 8), 1, 1, target=target)
    check_op(BMM, tensor(3, 9, 0), tensor(3, 0, 8), target=target)


def test_more_tiles_than_workgroups_along_an_axis(device: Device) -> None:
    few = replace(device.target, is_cpu=False, workgroups_max=7)
    check_op(LINEAR, tensor(130, 20), weight(260, 20), weight(260), target=few)
    check_op(BMM, tensor(40, 9, 8), tensor(40, 8, 12), target=few)


@pytest.mark.long(every=2)
@floats
def test_bmm(dtype: str, target: Target) -> None:
    check_op(BMM, tensor("S", 5, 7), tensor("S", 7, 3), dtype=dtype, target=target)
    check_op(BMM, tensor(3, "S", 7), tensor(3, 7, 5), dtype=dtype, target=target)


@each("bias", [(5,), (1, 5), ("S", 1), ("S", 5), (), (1,)])
@each(("beta", "alpha"), [(1, 1), (0.5, -2)])
def test_addmm(bias: tuple[int | str, ...], beta: float, alpha: float, target: Target) -> None:
    check_op(ADDMM, tensor(*bias), tensor("S", 7), tensor(7, 5), beta, alpha, target=target)


def test_addmm_does_not_read_a_bias_times_zero(target: Target) -> None:
    arguments = (tensor(values=[math.nan] * 5), tensor("S", 7), tensor(7, 5), 0, 1)
    check_op(ADDMM, *arguments, target=target)


@each("shape", [(11, 5, 3, 67), (1, 67, 3, 131), (3, 1, 5, 2)])
def test_more_workgroups_than_an_axis_takes(shape: tuple[int, ...], target: Target) -> None:
    batch, rows, depth, columns = shape
    narrow = replace(target, workgroups_max=5)
    check_op(BMM, tensor(batch, rows, depth), tensor(batch, depth, columns), target=narrow)


def test_products_over_nothing_are_zero(target: Target) -> None:
    check_op(MM, tensor("S", 0), tensor(0, 5), target=target)
    check_op(BMM, tensor(2, "S", 0), tensor(2, 0, 5), target=target)
    check_op(ADDMM, tensor(5), tensor("S", 0), tensor(0, 5), 1, 1, target=target)
    check_op(LINEAR, tensor("S", 0), weight(5, 0), weight(5), target=target)


def test_products_of_nothing(target: Target) -> None:
    check_op(MM, tensor("S", 7), tensor(7, 0), target=target)
    check_op(MM, tensor(0, 7), tensor(7, 5), target=target)
    check_op(MM, tensor("S", "T"), tensor("T", 5), live=NOTHING, target=target)
    check_op(LINEAR, tensor("S", 7), weight(5, 7), weight(5), live=NOTHING, target=target)


def test_refusals() -> None:
    x = tensor(3, 5)
    refuse_op(
        LINEAR,
        x,
        weight(4, 6),
        None,
        match=r"last dim must equal weight's second; got .*\[3, 5\], .*\[4, 6\]",
    )
    refuse_op(
        LINEAR, x, weight(4, 5), weight(3), out=((3, 4),), match=r"per row of weight; got .*\[4, 5\], .*\[3\]"
    )
    refuse_op(MM, x, tensor(4, 6), match=r"columns must equal the second's rows; got .*\[3, 5\], .*\[4, 6\]")
    refuse_op(LINEAR, x, weight(5), None, match="weight must have two dims")
    refuse_op(MM, x, tensor(5), match="must have two dims")
    refuse_op(BMM, x, tensor(5, 3), match="must have three dims")
    refuse_op(BMM, tensor(2, 3, 5), tensor(2, 4, 3), match="columns must equal the second's rows")
    refuse_op(BMM, tensor(2, 3, 5), tensor(3, 5, 3), match=r"of one size; got .*\[2, 3, 5\], .*\[3, 5, 3\]")
    refuse_op(ADDMM, tensor(4), x, tensor(5, 6), 1, 1, match=r"\[4\]")
    refuse_op(ADDMM, tensor(3, 1, 6), x, tensor(5, 6), 1, 1, match=r"must broadcast to \[3, 6\]; got")


# Software adapters: constant weights as uniform arrays -----------------------------------------------


@pytest.fixture
def software(device: Device, monkeypatch: pytest.MonkeyPatch) -> Target:
    if not device.target.broadcasts:
        pytest.skip("tensors can be uniform arrays on software adapters with subgroups alone")
    monkeypatch.setattr(uniform, "PRODUCTS_MIN", 1)
    return device.target


@pytest.mark.long(every=10)
@pytest.mark.parametrize(
    ("columns", "depth", "floats_max"),
    [
        (67, 31, 512),  # k that is not a multiple of four
        (131, 64, 1024),  # several launches
        (9, 600, 1024),  # k in parts
        (40, 128, 4096),  # several tiles in an array of rows
        (1, 64, 1024),  # one column
    ],
)
@pytest.mark.parametrize("has_uniform_rows", [True, False])
def test_uniform_arrays(
    columns: int,
    depth: int,
    floats_max: int,
    has_uniform_rows: bool,
    software: Target,
    measuring: Measuring,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(uniform, "UNIFORM_ROWS_MIN", 1 if has_uniform_rows else 1 << 60)
    tight = replace(software, uniform_bytes_max=4 * floats_max)
    x = tensor("M", depth, low=-1, high=1)
    matrix, added = weight(columns, depth, low=-1, high=1), weight(columns)
    live = {"M": (37, 1, 8, 5)}
    check_op(LINEAR, x, matrix, added, live=live, target=tight)
    other = weight(depth, columns, low=-1, high=1)
    check_op(ADDMM, added, x, other, 0.5, -2, live=live, target=tight)
    assert "matmul_uniform" in measuring.kernels


def test_uniform_arrays_of_f16(software: Target, measuring: Measuring) -> None:
    """Their rows become f32 first."""
    factors = tensor("M", 64, low=-1, high=1), weight(67, 64, low=-1, high=1), weight(67)
    check_op(LINEAR, *factors, live={"M": (13, 1, 8)}, dtype="f16", target=software)
    assert {"matmul_uniform", "unary"} <= measuring.kernels
