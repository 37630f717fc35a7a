"""What timestamps cost is taken off where it arose, and never more than there is."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from pteron.tools.profile.stamps import without_stamps


def measured(times: list[float], cost: float) -> tuple[list[float], list[float]]:
    """What launches and pairs of them take with a stamp behind each, where all stamps cost the same."""
    each = [time + cost for time in times]
    return each, [first + second + cost for first, second in pairwise(times)]


def test_equal_stamps_are_taken_off() -> None:
    """All but that at the end, half of which the first and the last launch keep: the pass has it too."""
    times = [5.0, 3.0, 80.0, 4.0, 2.5]
    found = without_stamps(*measured(times, 2.0))
    assert found[1:-1] == pytest.approx(times[1:-1])
    assert sum(found) == pytest.approx(sum(times) + 2.0)


def test_launches_that_overlap_share_their_time() -> None:
    """Two of ten seconds that run side by side take ten in all; a third waits for both."""
    found = without_stamps([10.0, 10.0, 10.0], [10.0, 20.0])
    assert found == pytest.approx([5.0, 5.0, 10.0])


def test_nothing_gets_negative() -> None:
    """However wrong the pairs are."""
    generator = np.random.default_rng(0)
    for _ in range(50):
        each, pairs = generator.exponential(size=9).tolist(), generator.normal(size=8).tolist()
        found = without_stamps(each, pairs)
        assert all(0 <= new <= old for new, old in zip(found, each, strict=True))


def test_a_long_launch_stays_long() -> None:
    """Nothing but its neighbours' time can be taken off it, so no noise puts it behind them."""
    found = without_stamps([1.0, 50.0, 1.0, 1.0], [0.0, 0.0, 0.0])
    assert found[1] == 49.0


@pytest.mark.parametrize("each", [[], [3.0], [3.0, 4.0]])
def test_without_pairs_times_are_what_they_are(each: list[float]) -> None:
    assert without_stamps(each, []) == each
