"""LoRA products: rows of different adapters and of none, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from arguments import tensor, weight
from check import check_op, each, floats, refuse_op
from lora_cases import ADAPTER_ROWS, LORA, SLOTS, TOKENS, adapters_of_slots, lora, matrices

from pteron.families.linear.lora import CHOICE_WORDS
from pteron.ops import Target

pytestmark = pytest.mark.kernels


SIZES = [([1], 1, 1), ([8, 3, 0], 64, 67), ([5], 131, 13), ([2, 16], 37, 257), ([7, 0, 1, 64], 300, 5)]


@each(("ranks", "depth", "columns"), SIZES)
def test_rows_of_several_adapters(ranks: list[int], depth: int, columns: int, target: Target) -> None:
    which = tensor("M", dtype="i32", low=0, high=len(ranks))
    x, y = tensor("M", depth, low=-1, high=1), tensor("M", columns)
    check_op(LORA, x, y, *matrices(ranks, depth, columns), which, oracle=lora, live=TOKENS, target=target)


@floats
def test_element_types(dtype: str, target: Target) -> None:
    a, b, ranks = matrices([4, 2], 24, 31)
    which = tensor("M", dtype="i32", low=0, high=2)
    x, y = tensor(1, "M", 24, low=-1, high=1), tensor(1, "M", 31)
    check_op(LORA, x, y, a, b, ranks, which, oracle=lora, live=TOKENS, dtype=dtype, target=target)


def test_long_rows_are_added_in_parts(target: Target) -> None:
    a, b, ranks = matrices([3], 9001, 7)
    arguments = (tensor(2, 9001), tensor(2, 7), a, b, ranks, tensor(values=np.array([1, 0]), dtype="i32"))
    check_op(LORA, *arguments, oracle=lora, live={}, target=target, atol=0.05)


def test_the_last_rows_count(target: Target) -> None:
    """The output matrix is applied to the last token only."""
    which = tensor(values=np.array([0, 1, 2, 1, 2]), dtype="i32")
    check_op(
        LORA,
        tensor(1, 12),
        tensor(1, 9),
        *matrices([2, 3], 12, 9),
        which,
        oracle=lora,
        live={},
        target=target,
    )


def test_unknown_adapters_read_the_last(target: Target) -> None:
    def clamped(x: Any, y: Any, a: Any, b: Any, ranks: Any, which: Any) -> torch.Tensor:
        return lora(x, y, a, b, ranks, which.clamp(0, 2))

    which = tensor(values=np.array([-1, 3, 2**31 - 1, -(2**31)]), dtype="i32")
    arguments = (tensor(4, 12), tensor(4, 9), *matrices([2, 3], 12, 9), which)
    check_op(LORA, *arguments, oracle=clamped, live={}, target=target)


def test_adapters_of_one_sequence() -> None:
    chosen = np.zeros((1, CHOICE_WORDS), np.int32)
    chosen[0, 0] = 3
    arguments = (weight(values=chosen, dtype="i32"), tensor(1, "M", dtype="i32"), None)
    check_op(
        ADAPTER_ROWS,
        *arguments,
        oracle=lambda chosen, ids, _: chosen[0, :1].repeat(ids.numel()),
        live=TOKENS,
        out="i32",
    )


def test_adapters_of_slots() -> None:
    check_op(ADAPTER_ROWS, *SLOTS, oracle=adapters_of_slots, live={}, out="i32")


def test_shapes_that_do_not_fit_are_errors() -> None:
    a, b, ranks = matrices([2], 12, 9)
    which = tensor(4, dtype="i32", low=0, high=1)
    refuse_op(LORA, tensor(4, 11), tensor(4, 9), a, b, ranks, which, match="columns of a and b")
    refuse_op(LORA, tensor(4, 12), tensor(4, 9), a, weight(1, 3, 9), ranks, which, match="adapters, rank")
    refuse_op(LORA, tensor(5, 12), tensor(5, 9), a, b, ranks, which, match="adapter of each row")
