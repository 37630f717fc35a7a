"""Times of launches with timestamps between them -> what each adds to the pass without these.

A stamp waits for what came before it, and what follows waits for the stamp: launches neither overlap nor
follow one another as closely as they do in a pass. What the stamp between two launches costs is measured
where it stands: the time of both with it, less that of both as one. Half of it is taken off either. In a long
pass launches may follow one another more closely yet than in pairs: what is left over the pass then is taken
off all of them alike.
"""

from __future__ import annotations

from collections.abc import Sequence


def without_neighbours(each: Sequence[float], pairs: Sequence[float]) -> list[float]:
    """Seconds of launches, from those with a stamp behind every one and those of neighbours without one
    between them; without such, the times are what they are.

    Two take no less than the longer one, and no more than both: so a stamp costs no more than the shorter one
    took, nothing gets negative, and what is measured otherwise is noise.
    """
    found = list(each)
    for index, pair in enumerate(pairs):
        first, second = each[index], each[index + 1]
        cost = min(max(first + second - pair, 0.0), first, second)
        found[index] -= cost / 2
        found[index + 1] -= cost / 2
    return found


def within_pass(each: Sequence[float], whole: float) -> list[float]:
    """Launches that add up to no more than the pass: all lose as much, but none more than it has."""
    found = list(each)
    rest = sum(found) - whole
    for place, index in enumerate(sorted(range(len(found)), key=lambda index: each[index])):
        if rest <= 0:
            break
        taken = min(found[index], rest / (len(found) - place))  # of what those from here on share
        found[index] -= taken
        rest -= taken
    return found
