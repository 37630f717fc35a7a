"""Windows find as many places on a plane as PyTorch's pools do."""

from __future__ import annotations

import itertools

import pytest
import torch

from pteron.ops import RequirementError
from pteron.ops.window import SlidingWindow


@pytest.mark.parametrize("ceil", [False, True])
def test_places(ceil: bool) -> None:
    for plane, size, stride, dilation in itertools.product((5, 8, 13), (1, 2, 3, 5), (1, 2, 3, 4), (1, 2)):
        padding = size // 2
        if (size - 1) * dilation + 1 > plane + 2 * padding:
            continue
        window = SlidingWindow.of([size], [stride], [padding], [dilation])
        pooled = torch.nn.functional.max_pool2d(
            torch.zeros(1, plane, plane + 1), size, stride, padding, dilation, ceil_mode=ceil
        )
        assert window.places((plane, plane + 1), ceil=ceil) == tuple(pooled.shape[1:])


def test_one_number_for_both_dims_and_the_size_as_default_stride() -> None:
    window = SlidingWindow.of([3], padding=[1, 0])
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
        SlidingWindow.of(size, stride, padding)


@pytest.mark.parametrize("numbers", [([2], [1], [0], [1 << 31]), ([1], [1], [1 << 30]), ([1], [1 << 31])])
def test_windows_that_32_bits_do_not_count(numbers: tuple[list[int], ...]) -> None:
    window = SlidingWindow.of(*numbers)
    for place in (window.places, lambda plane: window.spread(plane, [0])):
        with pytest.raises(RequirementError, match=r"reaches too far on a plane of \["):
            place((4, 4))
    with pytest.raises(RequirementError, match="reaches too far"):
        SlidingWindow.of([1]).places((4, 4), excess=(0, 1 << 31))


def test_a_window_that_does_not_fit() -> None:
    with pytest.raises(RequirementError, match=r"does not fit a plane of \[2, 9\]"):
        SlidingWindow.of([5]).places((2, 9))


def test_windows_laid_down_around_elements() -> None:
    for plane, size, stride, padding, dilation in itertools.product(
        (1, 4, 7), (1, 3), (1, 2, 3), (0, 1), (1, 2)
    ):
        for more in range(max(stride, dilation)):
            window = SlidingWindow.of([size], [stride], [padding], [dilation])
            if (plane - 1) * stride - 2 * padding + window.reach[0] + more < 1:
                continue
            spread = torch.nn.functional.conv_transpose2d(
                *(torch.zeros(1, 1, plane, plane + 1), torch.zeros(1, 1, size, size), None),
                *(stride, padding, more, 1, dilation),
            )
            assert window.spread((plane, plane + 1), [more]) == tuple(spread.shape[2:])


def test_output_padding_is_below_the_step_along_its_own_dim() -> None:
    window = SlidingWindow.of([3, 3], [1, 3])
    assert window.spread((4, 4), [0, 2]) == (6, 14)
    for more in ([1, 0], [0, 3], [-1, 0]):
        with pytest.raises(RequirementError, match="must be below the stride or the dilation"):
            window.spread((4, 4), more)
    with pytest.raises(RequirementError, match=r"leaves nothing of a plane of \[1, 1\]"):
        SlidingWindow.of([1], [1], [1]).spread((1, 1), [0])
