"""Comparisons of live integers, and copies over a tensor, which exporters take out and files may hold."""

from __future__ import annotations

import operator

import pytest
from arguments import tensor
from check import check_op, every_dtype
from small_graphs import SUM, P, Q, open_session

COMPARISONS = {name: getattr(operator, name) for name in ("lt", "gt", "ge", "le", "eq")}


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons(name: str) -> None:
    two_live = open_session((name, P, Q, SUM), inputs=(P, Q), outputs=(SUM,))
    one_live = open_session((name, P, 3, SUM), inputs=(P,), outputs=(SUM,))
    for a, b in [(7, 2), (2, 7), (3, 3), (-7, 7), (3, 4), (2, 2), (4, 3)]:
        assert two_live.run([a, b], [None]) == [COMPARISONS[name](a, b)]
        assert one_live.run([a], [None]) == [COMPARISONS[name](a, 3)]
    assert two_live.counters.plans <= 3  # one below, one above, one at equality: not one for each pair


@every_dtype
def test_a_copy_is_its_source(dtype: str) -> None:
    check_op("aten.copy.default", tensor("S", 5), tensor("S", 5), False, dtype=dtype)
