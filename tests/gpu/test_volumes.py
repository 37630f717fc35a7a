"""Convolutions and pools over volumes, and convolutions of batches: every form, odd sizes, live batches."""

from __future__ import annotations

import pytest
from arguments import tensor, weight
from check import check_op, floats

from pteron.ops import Target


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"),
    [
        ((1, 1, 1), (0, 0, 0), (1, 1, 1), 1),
        ((2, 1, 2), (1, 2, 0), (1, 1, 1), 1),
        ((1, 2, 1), (2, 1, 1), (2, 1, 1), 2),
        ((3, 1, 1), (1, 1, 1), (1, 1, 2), 4),
    ],
)
def test_convolution(
    stride: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...], groups: int, target: Target
) -> None:
    filters = weight(8, 4 // groups, 3, 2, 3)
    rest = (list(stride), list(padding), list(dilation), False, [0, 0, 0], groups)
    check_op("aten.convolution.default", tensor("T", 4, 7, 6, 5), filters, weight(8), *rest, target=target)


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "extra", "groups"),
    [
        ((1, 1, 1), (0, 0, 0), (1, 1, 1), (0, 0, 0), 1),
        ((2, 2, 2), (1, 1, 1), (1, 1, 1), (1, 1, 1), 2),
        ((3, 1, 2), (0, 1, 1), (2, 1, 1), (2, 0, 0), 1),
    ],
)
def test_transposed(
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    extra: tuple[int, ...],
    groups: int,
    target: Target,
) -> None:
    filters = weight(4, 6 // groups, 3, 2, 3)
    rest = (list(stride), list(padding), list(dilation), True, list(extra), groups)
    check_op("aten.convolution.default", tensor("T", 4, 3, 4, 5), filters, weight(6), *rest, target=target)


@pytest.mark.long(every=2)
@floats
def test_pools(dtype: str) -> None:
    x = tensor("T", 3, 7, 6, 9)
    for size, stride, padding in (((2, 2, 2), (), (0, 0, 0)), ((3, 2, 3), (2, 1, 2), (1, 1, 1))):
        for ceil in (False, True):
            numbers = [list(size), list(stride), list(padding)]
            check_op("aten.max_pool3d_with_indices.default", x, *numbers, [1, 1, 1], ceil, dtype=dtype)
            for counted in (False, True):
                check_op("aten.avg_pool3d.default", x, *numbers, ceil, counted, None, dtype=dtype)
    check_op("aten.max_pool3d_with_indices.default", x, [2, 3, 2], [1, 1, 1], [0, 1, 1], [2, 1, 3], False)
    check_op("aten.avg_pool3d.default", tensor(3, 7, 6, 9), [2, 2, 2], [], [0, 0, 0], False, True, 5)


def test_indices_in_volumes_of_live_planes() -> None:
    numbers = [2, 2, 2], [1, 1, 1], [0, 0, 0], [1, 1, 1]
    live = {"S": (9, 7, 4, 6), "T": (8, 5, 7, 4)}
    check_op("aten.max_pool3d_with_indices.default", tensor(1, 2, 4, "S", "T"), *numbers, False, live=live)
