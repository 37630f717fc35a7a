"""Pools: every window, border and rounding, windows too large for one invocation, the places of maxima."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from arguments import Argument, tensor
from check import check_op, each, each_float, refuse_op
from plane_cases import AVERAGE, INDICES, LARGEST

from pteron import Device
from pteron.dtypes import DType
from pteron.graph import Graph, Node, Tensor, ValueList
from pteron.host.tensors import HostResult
from pteron.ops import Target
from pteron.runtime.outputs import Wanted
from pteron.runtime.session import Session

Shape = tuple[int | str, ...]
Pairs = tuple[list[int], list[int], list[int]]
PLANES = {"S": (11, 7, 5, 13), "T": (13, 5, 8, 6)}

# size, stride, padding
WINDOWS: list[Pairs] = [
    ([2, 2], [], [0, 0]),
    ([3, 3], [2, 2], [1, 1]),
    ([3, 2], [1, 3], [1, 0]),
    ([1, 5], [2, 1], [0, 2]),
    ([5, 3], [3, 4], [2, 1]),
    ([3], [2], [1]),
]


@pytest.mark.long(every=2)
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_average(window: Pairs, counted: bool, ceil: bool) -> None:
    check_op(AVERAGE, tensor(2, 3, "S", "T"), *window, ceil, counted, None, live=PLANES)


@each("divisor", [1, 7, -3])
def test_average_by_a_divisor(divisor: int, target: Target) -> None:
    window: Pairs = [3, 3], [2, 1], [1, 1]
    check_op(AVERAGE, tensor(3, "S", "T"), *window, True, False, divisor, live=PLANES, target=target)
    check_op(AVERAGE, tensor(2, 3, 5, 7), [5, 7], [], [0, 0], False, True, divisor, target=target)


@each_float
def test_average_in_float_types(dtype: str, target: Target) -> None:
    arguments = (tensor("N", 3, "S", 7), [3, 3], [2, 2], [1, 1], True, True, None)
    check_op(AVERAGE, *arguments, live={"N": (3, 1, 2, 0), "S": (5, 11, 7)}, dtype=dtype, target=target)


@each("plane", [(1, 1), (7, 7), (5, 13), (1, 1009), (131, 67)])
@each_float
def test_average_of_whole_planes(plane: tuple[int, int], dtype: str, target: Target) -> None:
    arguments = (tensor("S", 5, *plane), list(plane), [1, 1], [0, 0], False, True, None)
    check_op(AVERAGE, *arguments, live={"S": (3, 0, 1)}, dtype=dtype, target=target)


@each("counted", [False, True])
@each(
    ("plane", "window"),
    [
        ((300, 300), ([300, 300], [], [0, 0])),
        ((301, 303), ([300, 300], [1, 2], [0, 0])),
        ((301, 303), ([300, 301], [2, 1], [7, 5])),
        ((23, 31), ([13, 17], [3, 1], [6, 8])),
        ((1, 3001), ([1, 2999], [1, 1], [0, 1])),
    ],
)
def test_averages_of_large_windows(
    plane: tuple[int, int], window: Pairs, counted: bool, target: Target
) -> None:
    for divisor in (None, 10_007):
        check_op(AVERAGE, tensor(2, 1, *plane), *window, True, counted, divisor, target=target)


def test_more_workgroups_than_an_axis_takes(target: Target) -> None:
    narrow = replace(target, workgroups_max=13)
    arguments = (tensor(1, 3, 41, 43), [1, 2], [1, 1], [0, 0])
    check_op(AVERAGE, *arguments, False, True, None, target=narrow)
    check_op(INDICES, *arguments, [1, 1], False, target=narrow)


@pytest.mark.long(every=4)
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("dilation", [[1, 1], [2, 3]])
@pytest.mark.parametrize("window", [w for w in WINDOWS if w[0] != [5, 3]], ids=str)
def test_largest(window: Pairs, dilation: list[int], ceil: bool) -> None:
    arguments = (tensor(2, 3, "S", "T"), *window, dilation, ceil)
    live = {"S": (11, 7, 5, 13), "T": (13, 9, 17, 14)}
    check_op(LARGEST, *arguments, live=live)
    check_op(INDICES, *arguments, live=live)


@each_float
def test_largest_in_float_types(dtype: str, target: Target) -> None:
    arguments = (tensor("N", 3, "S", 7), [3, 3], [2, 2], [1, 1], [1, 1], False)
    live = {"N": (3, 1, 2, 0), "S": (5, 11, 7)}
    check_op(LARGEST, *arguments, live=live, dtype=dtype, target=target)
    check_op(INDICES, *arguments, live=live, dtype=dtype, target=target)
    check_op(INDICES, tensor("S", 5, 7), [2, 2], [], [0, 0], [1, 1], True, live=live, dtype=dtype)


@each(
    ("plane", "window", "dilation"),
    [
        ((300, 300), ([300, 300], [], [0, 0]), [1, 1]),
        ((301, 303), ([300, 300], [1, 2], [3, 5]), [1, 1]),
        ((131, 97), ([13, 17], [5, 3], [6, 8]), [3, 2]),
        ((7, 7), ([7, 7], [], [0, 0]), [1, 1]),
    ],
)
def test_maxima_of_large_windows(
    plane: tuple[int, int], window: Pairs, dilation: list[int], target: Target
) -> None:
    arguments = (tensor(2, 3, *plane), *window, dilation, True)
    check_op(LARGEST, *arguments, target=target)
    check_op(INDICES, *arguments, target=target)


@each("size", [3, 17])
def test_the_first_of_equals_and_the_last_nan(size: int, target: Target) -> None:
    random = np.random.default_rng(0)
    chosen = random.choice(
        [0.0, 1.0, -math.inf, math.inf, math.nan], (2, 2, 37, 41), p=[0.7, 0.2, 0.04, 0.04, 0.02]
    )
    for values in (chosen, np.full((1, 1, 19, 19), -math.inf), np.zeros((1, 1, 19, 19))):
        window = (tensor(values=values), [size, size], [2, 3], [size // 2, 1], [1, 1], True)
        check_op(INDICES, *window, target=target)
        check_op(LARGEST, *window, target=target)


def test_a_window_whose_dilation_leaps_over_the_plane(target: Target) -> None:
    arguments = (tensor(1, 1, 1, 5), [2, 2], [1, 1], [1, 1], [2, 1], False)
    check_op(LARGEST, *arguments, oracle=lambda x, *_: torch.full((1, 1, 1, 6), -math.inf), target=target)


def test_indices_without_a_reader(device: Device, target: Target) -> None:
    x, out = Tensor(0, DType.F32, (2, 5, 7)), Tensor(1, DType.F32, (2, 2, 3))
    window = ((2, 2), (), (0, 0), (1, 1), False)
    node = Node(0, INDICES, (x, *window, ValueList(2, (out, None))))
    session = Session.of(Graph("pool", (node,), (x,), (out,)), device, target=target)
    states = session.states()
    values = np.random.default_rng(0).normal(size=(2, 5, 7)).astype(np.float32)
    (result,) = session.run([values], [Wanted(DType.F32, on_gpu=False)], states)
    assert isinstance(result, HostResult)
    expected = torch.max_pool2d(torch.from_numpy(values), 2).numpy()
    np.testing.assert_array_equal(result.numpy(), expected)
    states.close()
    session.close()


def test_a_window_too_long_for_the_adapter(device: Device) -> None:
    if not device.target.loop_max:
        pytest.skip("this adapter does not end loops")
    window = ([1, 70_000], [1, 1], [0, 0], False, True, None)
    refuse_op(AVERAGE, tensor(1, 1, 1, 70_001), *window, out=((1, 1, 1, 2),), match="the adapter ends loops")


def test_refusals() -> None:
    x = tensor(1, 1, 4, 4)
    rest = (False, True, None)
    two = ((1, 1, 4, 4),) * 2
    refuse_op(AVERAGE, x, [3, 3], [1, 1], [2, 2], *rest, match="at most half of what a window reaches; got")
    refuse_op(AVERAGE, x, [5, 5], [1, 1], [0, 0], *rest, match=r"does not fit a plane of \[4, 4\]")
    refuse_op(AVERAGE, x, [2, 2], [0, 1], [0, 0], *rest, match="must be positive")
    refuse_op(AVERAGE, x, [2, 2], [1, 1], [-1, 0], *rest, match="must not be negative")
    refuse_op(AVERAGE, x, [2, 2, 2], [], [0, 0], *rest, match="must be one number or two")
    refuse_op(AVERAGE, x, [2, 2], [], [0, 0], False, True, 0, out=((1, 1, 2, 2),), match="must not be zero")
    refuse_op(AVERAGE, tensor(4, 4), [2, 2], [], [0, 0], *rest, match="three or four dims of floats; got")
    refuse_op(AVERAGE, tensor(1, 0, 4, 4), [2, 2], [], [0, 0], *rest, match="not empty")
    window: tuple[Argument, ...] = ([2, 2], [], [0, 0], [1, 1], False)
    refuse_op(LARGEST, tensor(1, 4, 4, dtype="i32"), *window, match="dims of floats")
    refuse_op(INDICES, x, [2, 2], [], [0, 0], [5, 5], False, out=two, match="does not fit a plane")
    refuse_op(INDICES, x, *window, out=((1, 1, 2, 2),) * 2, match="indices are integers of 32 or 64 bits")
