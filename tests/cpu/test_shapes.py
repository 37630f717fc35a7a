"""Arithmetic on shapes and strides beside NumPy's; how rows are shared; what plans need of a device."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from pteron.dtypes import DType, Storage
from pteron.errors import DeviceError
from pteron.graph import Tensor
from pteron.ops import Operand, RequirementError, Target
from pteron.ops.operand import OperandSlice, Slot
from pteron.ops.row_layout import fits_registers, folded, register_rows, row_layout, split
from pteron.ops.shapes import axes, axis, broadcast, broadcast_strides, check_live_slice, collapse
from pteron.ops.strided import Strided, bound_of
from pteron.ops.target import EMULATED, MATRIX

GPU = Target(is_cpu=False, subgroup_size=32, invocations_max=1024)


def operand(*shape: int, dtype: DType = DType.F32) -> Operand:
    return Operand(Tensor(0, dtype, shape), shape, Target(shader_f16=True).storage(dtype), Slot(0))


# Dims -------------------------------------------------------------------------------------------


def test_dims_from_either_end() -> None:
    assert [axis(dim, 3) for dim in (0, 2, -1, -3)] == [0, 2, 2, 0]
    for dim in (3, -4):
        with pytest.raises(RequirementError, match=f"dim {dim} is out of range for rank 3"):
            axis(dim, 3)
    assert axes((-1, 0), 3) == (0, 2)
    assert axes(None, 3) == axes((), 3) == (0, 1, 2)
    assert axes((0,), 0) == axes(None, 0) == ()
    with pytest.raises(RequirementError, match="name one dim twice"):
        axes((1, -2), 3)


@pytest.mark.parametrize(
    ("start", "end", "fits"),
    [
        (0, 5, True), (2, 2, True), (5, 5, True), (3, 2, False), (-1, 5, False), (0, 6, False),
    ],
)  # fmt: skip
def test_live_bounds_of_a_slice(start: int, end: int, fits: bool) -> None:
    if fits:
        check_live_slice(5, start, end)
    else:
        with pytest.raises(RequirementError, match="leaves its dim, which has size 5"):
            check_live_slice(5, start, end)


# Strides ----------------------------------------------------------------------------------------


def offsets(shape: Any, strides: Any) -> list[int]:
    """Where each element of a walk is, in its order."""
    return [sum(map(int.__mul__, place, strides)) for place in product(*map(range, shape))]


def test_broadcasts_are_those_of_numpy() -> None:
    shapes = [(), (1,), (3,), (2, 3), (2, 1), (1, 3), (4, 1, 3), (4, 2, 1), (0,), (2, 0)]
    for a, b in product(shapes, shapes):
        try:
            expected = np.broadcast_shapes(a, b)
        except ValueError:
            with pytest.raises(RequirementError, match="do not broadcast together"):
                broadcast(a, b)
            continue
        assert broadcast(a, b) == expected
        for shape in (a, b):
            numbers = np.broadcast_to(np.arange(np.prod(shape, dtype=int)).reshape(shape), expected)
            strides = broadcast_strides(shape, expected)
            assert offsets(expected, strides) == numbers.reshape(-1).tolist()
        walks = [broadcast_strides(shape, expected) for shape in (a, b)]
        sizes, merged = collapse(expected, *walks)
        assert 1 not in sizes
        assert [offsets(sizes, each) for each in merged] == [offsets(expected, each) for each in walks]
    assert collapse((2, 3, 4), (12, 4, 1), (12, 4, 1)) == ((24,), [(1,), (1,)])
    assert collapse((2, 3, 4), (12, 4, 1), (12, 4, 1), (4, 0, 1))[0] == (2, 3, 4)


@pytest.mark.parametrize("seed", range(60))
def test_strides_show_what_numpy_shows(seed: int) -> None:
    """Permutations, slices, selections and views, in any order; a view is None where NumPy would copy."""
    draw = random.Random(seed)
    shape = tuple(draw.choice((1, 2, 3, 4)) for _ in range(draw.randint(1, 4)))
    shown, array = Strided.of(operand(*shape)), np.arange(np.prod(shape)).reshape(shape)
    memory = array.reshape(-1)
    for _ in range(6):
        rank = array.ndim
        dim, kind = (
            draw.randrange(max(rank, 1)),
            draw.choice(["permute", "select", "slice", "view", "unsqueeze"]),
        )
        if kind == "permute":
            order = draw.sample(range(rank), rank)
            shown, array = shown.permuted(order), array.transpose(order)
        elif kind == "select" and rank > 1:
            index = draw.randrange(-array.shape[dim], array.shape[dim])
            shown, array = shown.selected(dim, index), array[(slice(None),) * dim + (index,)]
        elif kind == "slice" and rank:
            start = draw.randrange(array.shape[dim])
            count = draw.randint(1, array.shape[dim] - start)
            shown, array = (
                shown.sliced(dim, start, count),
                array[(slice(None),) * dim + (slice(start, start + count),)],
            )
        elif kind == "unsqueeze":
            shown, array = shown.unsqueezed(dim), np.expand_dims(array, dim)
        elif kind == "view":
            wanted = _factors(array.size, draw)
            view = array.view()
            try:
                view.shape = wanted
            except AttributeError:
                assert shown.viewed(wanted) is None
                continue
            made = shown.viewed(wanted)
            assert made is not None
            shown, array = made, view
        assert shown.shape == array.shape
        places = [int(shown.first) + place for place in offsets(shown.shape, shown.strides)]
        assert memory[places].tolist() == array.reshape(-1).tolist()


def _factors(count: int, draw: random.Random) -> tuple[int, ...]:
    """A shape of so many elements."""
    sizes = []
    while count > 1:
        size = draw.choice([each for each in range(2, count + 1) if count % each == 0])
        sizes.append(size)
        count //= size
    for _ in range(draw.randint(0, 2)):
        sizes.insert(draw.randint(0, len(sizes)), 1)
    return tuple(sizes)


def test_what_a_kernel_can_bind() -> None:
    whole = Strided.of(operand(8, 64))
    assert whole.is_bindable(4)
    assert not whole.permuted((1, 0)).is_bindable(1)
    row = whole.sliced(0, 1, 2)  # from byte 256 on
    assert row.is_bindable(4)
    bound = bound_of(row)
    assert isinstance(bound, OperandSlice)
    assert (bound.first, bound.start) == (64, 256)
    assert not whole.sliced(1, 1, 2).is_bindable(1)
    assert bound_of(whole) is whole.source
    odd = Strided.of(operand(8, 6))
    assert [odd.is_bindable(unit) for unit in (1, 2, 4)] == [True, True, False]
    halves = Strided.of(operand(8, 64, dtype=DType.F16))
    assert [halves.sliced(0, first, 1).is_bindable(4) for first in (0, 1, 2)] == [True, False, True]


# Rows -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "rows", "length", "lanes", "count"),
    [
        (Target(), 1, 5000, 1, 8),
        (GPU, 1, 32, 32, 2),
        (GPU, 1, 33, 64, 1),
        (GPU, 1, 5000, 256, 1),
        (GPU, 4095, 5000, 256, 1),
        (GPU, 4096, 5000, 32, 2),
        (replace(GPU, subgroup_size=0), 1, 1, 1, 64),
        (replace(GPU, subgroup_size=0), 1, 3, 4, 16),
    ],
)
def test_how_many_invocations_share_a_row(
    target: Target, rows: int, length: int, lanes: int, count: int
) -> None:
    layout = row_layout(target, rows, length)
    assert (layout["LANES"], layout["ROWS"]) == (lanes, count)
    assert ("BY_SUBGROUPS" in layout) == (target.subgroup_size == 32 and lanes % 32 == 0)


def test_rows_in_registers() -> None:
    longest = 4 * 32 * 256
    fits = [fits_registers(GPU, length) for length in (0, 8, 12, longest, longest + 8)]
    assert fits == [False, True, False, True, False]
    assert not fits_registers(Target(), 64)
    lanes = [register_rows(GPU, rows, longest, 2)["LANES"] for rows in (1, 128, 129, 256, 257)]
    assert lanes == [1024, 1024, 512, 512, 256]
    assert register_rows(GPU, 1, longest, 2, in_one_order=True)["LANES"] == 256
    assert register_rows(replace(GPU, invocations_max=256), 1, longest, 2)["LANES"] == 256
    assert register_rows(GPU, 1, 256, 2)["LANES"] == 32  # not more than it has work for
    assert register_rows(GPU, 1, 272, 2)["LANES"] == 64
    assert register_rows(GPU, 1, 272, 2)["QUADS"] == 68


def test_parts_of_a_row() -> None:
    for length, most in product([*range(1, 40), 4095, 4096, 4097, 100_003], (1, 3, 7, 4096)):
        parts, span = split(length, most)
        assert 1 <= span <= most
        assert (parts - 1) * span < length <= parts * span
        assert parts == -(-length // span)
        assert parts <= -(-length // most)
    assert split(0, 7) == (1, 1)


def test_grids_that_are_folded() -> None:
    target = Target(workgroups_max=10)
    for count in (1, 10, 11, 57, 100):
        x, y, z = folded(target, count)
        assert (x <= 10, y <= 10, z) == (True, True, 1)
        assert count <= x * y < count + y
    assert folded(target, 10) == (10, 1, 1)


# Targets ----------------------------------------------------------------------------------------


def test_targets_without_parts() -> None:
    full = replace(GPU, shader_f16=True, broadcasts=True, matrices=(MATRIX,))
    assert full.without(()) == full
    assert full.without(("matrices",)) == replace(full, matrices=())
    assert full.without(("f16", "packed-dots")) == replace(full, shader_f16=False, packed_dots=False)
    assert full.without(("subgroups",)) == replace(full, subgroup_size=0, broadcasts=False, matrices=())
    assert full.without(("route",)).without(("route",)) == full
    assert full.without(("route",)).is_cpu


def test_which_devices_have_matrices() -> None:
    assert replace(GPU, matrices=(MATRIX,)).has_matrices
    assert not replace(GPU, matrices=(MATRIX,), subgroup_size=64).has_matrices
    assert not replace(GPU, matrices=("f16 f16 8x8x8",)).has_matrices
    emulated = Target(matrices=(EMULATED,))
    assert (emulated.has_matrices, emulated.bytes_of_half, GPU.bytes_of_half) == (True, 4, 2)


@pytest.mark.parametrize(
    ("planned", "device", "missing"),
    [
        ({"shader_f16": True}, {}, "f16 arithmetic"),
        ({"subgroup_size": 32}, {"subgroup_size": 64}, "subgroups of 32"),
        ({"subgroup_size": 32}, {}, "subgroups of 32"),
        ({"workgroups_max": 100}, {"workgroups_max": 99}, "100 workgroups an axis"),
        ({"broadcasts": True}, {}, "values passed among lanes"),
        (
            {"broadcasts": True, "uniform_bytes_max": 200},
            {"broadcasts": True, "uniform_bytes_max": 100},
            "of 200",
        ),
        ({"broadcasts": True, "uniform_alignment": 64}, {"broadcasts": True}, "at multiples of 64"),
        (
            {"matrices": (MATRIX,), "subgroup_size": 32},
            {"subgroup_size": 32},
            "products of f16 matrices",
        ),
        ({}, {"loop_max": 100}, "loops without a limit"),
        ({"loop_max": 101}, {"loop_max": 100}, "loops without a limit"),
    ],
)
def test_what_plans_need_of_a_device(planned: dict[str, Any], device: dict[str, Any], missing: str) -> None:
    needs, has = Target(**planned), Target(**device)
    with pytest.raises(DeviceError, match=f"planned for a device with .*{missing}"):
        needs.check_runs_on(has)
    needs.check_runs_on(needs)


def test_devices_may_have_more() -> None:
    small = Target(broadcasts=True, uniform_alignment=256, workgroups_max=99, loop_max=10)
    large = replace(
        small, uniform_alignment=64, uniform_bytes_max=1 << 20, workgroups_max=100, shader_f16=True
    )
    small.check_runs_on(large)
    small.check_runs_on(replace(large, loop_max=0))
    Target().check_runs_on(Target(uniform_bytes_max=1, uniform_alignment=3))  # not used without broadcasts
    assert small.storage(DType.F16) is Storage.F32
    assert large.storage(DType.F16) is Storage.F16
