"""A sequence of operators -> the parts of it that repeat, as the layers of a model do, whatever it is called.

A repetition is the longest stretch in which every operator is followed, one period later, by the same one.
Layers next to it that have a few nodes more, such as the first one, count too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Block: TypeAlias = tuple[int, int]  # nodes [first, end)
Flow: TypeAlias = tuple[Sequence[int], Sequence[int]]  # the values that a node reads, and those it writes

_PERIOD_MIN = 4  # nodes: less is not worth a fold
_PERIOD_MAX = 2000
_REPETITIONS_MAX = 8
_EXTRA = 4  # a block may have one node in so many that its equals lack


def find_repetitions(operators: Sequence[str], flow: Sequence[Flow]) -> tuple[tuple[Block, ...], ...]:
    """Blocks of nodes that do alike work, in order, repetition by repetition; none overlap."""
    names = {name: index for index, name in enumerate(dict.fromkeys(operators))}
    labels = np.array([names[name] for name in operators], np.int64)
    found: list[tuple[Block, ...]] = []
    pieces = [(0, len(labels))]
    while pieces and len(found) < _REPETITIONS_MAX:
        first, end = pieces.pop()
        best = _longest(labels[first:end])
        if best is None:
            continue
        start, period, times = best
        starts = _cuts(first + start, period, times, end, labels, flow)
        # The most blocks, the first of equals: max keeps the first.
        blocks = max((_with_neighbours(start, period, labels, first, end) for start in starts), key=len)
        found.append(tuple(blocks))
        pieces += [(first, blocks[0][0]), (blocks[-1][1], end)]
    return tuple(sorted(found))


def _longest(labels: npt.NDArray[np.int64]) -> tuple[int, int, int] | None:
    """Where the repetition that covers most nodes starts, its period, how often it comes; the shortest period
    of those that cover as much. One operator again and again is none."""
    best: tuple[int, int, int] | None = None
    covered = 0
    for period in range(_PERIOD_MIN, min(len(labels) // 2, _PERIOD_MAX) + 1):
        for start, length in _runs(labels[period:] == labels[:-period], period):
            times = length // period + 1
            is_varied = (labels[start : start + period] != labels[start]).any()
            if times * period > covered and is_varied:
                best, covered = (start, period, times), times * period
    return best


def _runs(equal: npt.NDArray[np.bool_], length_min: int) -> Iterator[tuple[int, int]]:
    """(start, length) of each stretch of so many trues or more."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], equal, [False])).astype(np.int8)))
    starts, lengths = edges[::2], edges[1::2] - edges[::2]
    long = lengths >= length_min
    yield from zip(starts[long].tolist(), lengths[long].tolist(), strict=True)


def _cuts(
    start: int, period: int, times: int, end: int, labels: npt.NDArray[np.int64], flow: Sequence[Flow]
) -> list[int]:
    """Where to cut: of all starts that lose less than a block, those that the fewest values cross."""
    reach = start + period * times
    while reach < end and labels[reach] == labels[reach - period]:
        reach += 1
    starts = range(start, min(start + period, reach - 2 * period + 1))

    def crossing(first: int) -> int:
        written = {value for _, writes in flow[first : first + period] for value in writes}
        read = {value for reads, _ in flow[first + period : first + 2 * period] for value in reads}
        return len(written & read)

    counts = {first: crossing(first) for first in starts}
    return [first for first, count in counts.items() if count == min(counts.values())]


def _with_neighbours(
    start: int, period: int, labels: npt.NDArray[np.int64], first: int, end: int
) -> list[Block]:
    """All blocks from a start on, and those before and behind that have a few more nodes."""
    blocks = [(start, start + period)]
    template = labels[start : start + period]
    while (
        blocks[-1][1] + period <= end and (labels[blocks[-1][1] : blocks[-1][1] + period] == template).all()
    ):
        blocks.append((blocks[-1][1], blocks[-1][1] + period))
    while (length := _alike(template[::-1], labels[first : blocks[0][0]][::-1])) is not None:
        blocks.insert(0, (blocks[0][0] - length, blocks[0][0]))
    while (length := _alike(template, labels[blocks[-1][1] : end])) is not None:
        blocks.append((blocks[-1][1], blocks[-1][1] + length))
    return blocks


def _alike(template: npt.NDArray[np.int64], labels: npt.NDArray[np.int64]) -> int | None:
    """How many of the first labels hold the template in order with a few others in between."""
    position, extra = 0, len(template) // _EXTRA
    for length, label in enumerate(labels.tolist(), start=1):
        if label == template[position]:
            position += 1
            if position == len(template):
                return length
        elif length - position > extra:
            return None
    return None
