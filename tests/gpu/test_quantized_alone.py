"""Products with 4-bit weights: strips of columns, and groups of any whole words."""

from __future__ import annotations

import pytest
from arguments import tensor, weight
from check import check_op
from quantized_cases import LINEAR, packed, scales

from pteron.families.quantized.linear_q4 import BLOCK_WORDS, thread_cut
from pteron.ops import Target

pytestmark = pytest.mark.kernels


@pytest.mark.parametrize("group", [8, 16, 24, 40, 32])
def test_groups_of_any_whole_words(group: int, target: Target) -> None:
    """Four consecutive words may span several groups, and the last block of four may be partial."""
    depth = 3 * group
    arguments = (weight(values=packed(37, depth), dtype="u8"), scales(depth, group, 37))
    x = tensor("M", depth, low=-1, high=1)
    check_op(LINEAR, x, *arguments, group, None, live={"M": (5, 1, 3)}, target=target)


@pytest.mark.parametrize("columns", [1, 7, 129, 1031])
def test_strips_cover_all_columns(columns: int, target: Target) -> None:
    arguments = (weight(values=packed(columns, 32), dtype="u8"), scales(32, 32, columns))
    x = tensor("M", 32, low=-1, high=1)
    check_op(LINEAR, x, *arguments, 32, None, live={"M": (9, 1, 2)}, target=target)


def test_an_invocation_stays_below_the_limit_of_loops() -> None:
    for rows in (1, 2, 3, 4, 67):
        declarations, words = thread_cut(rows, 1 << 20)
        tile, wide = declarations["TILE"], declarations["WIDE"]
        assert words % BLOCK_WORDS == 0
        assert words // BLOCK_WORDS * (8 + wide) * (1 + tile) + tile * (1 + wide) < 65535
