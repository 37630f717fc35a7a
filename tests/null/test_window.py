"""Windows find as many places on a plane as PyTorch's pools do."""

from __future__ import annotations

import itertools

import pytest
import torch

from pteron.ops import RequirementError
from pteron.ops.window import Window


@pytest.mark.parametrize("ceil", [False, True])
def test_places(ceil: bool) -> None:
    for plane, size, stride, dilation in itertools.product((5, 8, 13), (1, 2, 3, 5), (1, 2, 3, 4), (1, 2)):
        padding = size // 2
        if (size - 1) * dilation + 1 > plane + 2 * padding:
            continue
        window = Window.of([size], [stride], [padding], [dilation])
        pooled = torch.nn.functional.max_pool2d(
            torch.zeros(1, plane, plane + 1), size, stride, padding, dilation, ceil_mode=ceil
        )
        assert window.places((plane, plane + 1), ceil=ceil) == tuple(pooled.shape[1:])


def test_one_number_stands_for_both_dims_and_no_stride_for_the_size() -> None:
    window = Window.of([3], padding=[1, 0])
    assert (window.size, window.stride, window.padding, window.dilation) == ((3, 3), (3, 3), (1, 0), (1, 1))


@pytest.mark.parametrize(
    ("size", "stride", "padding", "match"),
    [
        ((0, 3), (1, 1), (0, 0), "must be positive"),
        ((3, 3), (1, 0), (0, 0), "must be positive"),
        ((3, 3), (1, 1), (-1, 0), "must not be negative"),
        ((1, 2, 3), (1, 1), (0, 0), "must be one number or two"),
    ],
)
def test_what_is_no_window(
    size: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...], match: str
) -> None:
    with pytest.raises(RequirementError, match=match):
        Window.of(size, stride, padding)


def test_a_window_that_does_not_fit() -> None:
    with pytest.raises(RequirementError, match=r"does not fit a plane of \[2, 9\]"):
        Window.of([5]).places((2, 9))
