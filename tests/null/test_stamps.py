"""The cost of timestamps is subtracted from the launches that paid it; no time becomes negative."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from pteron.tools.profile.timing import fit_to_pass, subtract_stamp_cost


def measured(times: list[float], cost: float) -> tuple[list[float], list[float]]:
    """Measured times of launches and of pairs, if a stamp of the same cost follows each."""
    each = [time + cost for time in times]
    return each, [first + second + cost for first, second in pairwise(times)]


def test_equal_stamps_are_taken_off() -> None:
    """The cost of each time stamp is subtracted, except for the last one: the first and the last launch keep
    half of it each, because the whole pass includes it too."""
    times = [5.0, 3.0, 80.0, 4.0, 2.5]
    found = subtract_stamp_cost(*measured(times, 2.0))
    assert found[1:-1] == pytest.approx(times[1:-1])
    assert sum(found) == pytest.approx(sum(times) + 2.0)


def test_launches_that_overlap_share_their_time() -> None:
    """Two launches of ten seconds that overlap take ten in total; a third waits for both."""
    found = subtract_stamp_cost([10.0, 10.0, 10.0], [10.0, 20.0])
    assert found == pytest.approx([5.0, 5.0, 10.0])


def test_nothing_gets_negative() -> None:
    """Even if the pair times are random."""
    generator = np.random.default_rng(0)
    for _ in range(50):
        each, pairs = generator.exponential(size=9).tolist(), generator.normal(size=8).tolist()
        found = subtract_stamp_cost(each, pairs)
        assert all(0 <= new <= old for new, old in zip(found, each, strict=True))


def test_a_long_launch_stays_long() -> None:
    """At most its neighbours' time is subtracted from it, so noise cannot rank it below them."""
    found = subtract_stamp_cost([1.0, 50.0, 1.0, 1.0], [0.0, 0.0, 0.0])
    assert found[1] == 49.0


@pytest.mark.parametrize("each", [[], [3.0], [3.0, 4.0]])
def test_without_pairs_times_are_what_they_are(each: list[float]) -> None:
    assert subtract_stamp_cost(each, []) == each


def test_what_is_left_over_the_pass_is_taken_off_alike() -> None:
    assert fit_to_pass([5.0, 3.0, 4.0], 9.0) == pytest.approx([4.0, 2.0, 3.0])
    assert fit_to_pass([5.0, 3.0], 9.0) == [5.0, 3.0], "nothing is added"
    assert fit_to_pass([], 1.0) == []


def test_what_a_short_launch_has_not_the_others_give() -> None:
    assert fit_to_pass([9.0, 0.5, 9.0], 12.5) == pytest.approx([6.25, 0.0, 6.25])


def test_order_is_kept() -> None:
    generator = np.random.default_rng(1)
    for _ in range(50):
        each = generator.exponential(size=11)
        found = np.array(fit_to_pass(each.tolist(), float(each.sum()) * generator.uniform(0.1, 1)))
        assert (np.diff(found[np.argsort(each)]) >= -1e-12).all()
        assert found.min() >= 0
