"""Two graphs -> pairs of nodes that do the same work; a node that only one graph has is paired with None.

Nodes are matched in order. A pair counts for its operator, its output types and its constants, and the
alignment with the greatest sum is taken: an inserted node shifts nothing, and a layer stays with its weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pteron.graph import Graph, Node
from pteron.graph.values import tensors

Pair: TypeAlias = tuple[Node | None, Node | None]
Labels: TypeAlias = npt.NDArray[np.int32]  # a row per node: operator, output types, constants

_OPERATOR_COUNTS = 2  # and each of the other labels 1


def align(before: Graph, after: Graph) -> tuple[Pair, ...]:
    """All nodes of both graphs in order. Between matched nodes, as many unmatched ones on both sides are
    pairs too: one operator took the place of another."""
    matched = _matches(*_labels(before.nodes, after.nodes))
    borders = [(-1, -1), *matched, (len(before.nodes), len(after.nodes))]
    pairs: list[Pair] = []
    for (old, new), (old_end, new_end) in pairwise(borders):
        if old >= 0:
            pairs.append((before.nodes[old], after.nodes[new]))
        pairs += _unmatched(before.nodes[old + 1 : old_end], after.nodes[new + 1 : new_end])
    return tuple(pairs)


def _unmatched(before: Sequence[Node], after: Sequence[Node]) -> Iterator[Pair]:
    if len(before) == len(after):
        yield from zip(before, after, strict=True)
        return
    yield from zip_longest(before, ())
    yield from ((None, node) for node in after)


def _labels(*graphs: Sequence[Node]) -> tuple[Labels, Labels]:
    numbers: dict[object, int] = {}

    def label(node: Node) -> list[int]:
        types = tuple((tensor.dtype, tensor.shape_max) for tensor in tensors(node.args[-1]))
        found = (tensor.constant for value in node.args for tensor in tensors(value))
        keys = tuple(constant.key for constant in found if constant is not None)
        return [numbers.setdefault(each, len(numbers)) for each in (node.name, types, ("constants", keys))]

    before, after = (np.array([label(node) for node in nodes], np.int32).reshape(-1, 3) for nodes in graphs)
    return before, after


def _matches(before: Labels, after: Labels) -> list[tuple[int, int]]:
    """The positions of the pairs, ascending on both sides. Equal nodes at the start and the end need no
    table."""
    count = min(len(before), len(after))
    equal = (before[:count] == after[:count]).all(1)
    start = count if equal.all() else int(equal.argmin())
    equal = (before[start:][::-1][: count - start] == after[start:][::-1][: count - start]).all(1)
    end = len(equal) if equal.all() else int(equal.argmin())
    middle = _best(before[start : len(before) - end], after[start : len(after) - end])
    return [
        *((place, place) for place in range(start)),
        *((start + old, start + new) for old, new in middle),
        *((len(before) - place, len(after) - place) for place in range(end, 0, -1)),
    ]


def _best(before: Labels, after: Labels) -> list[tuple[int, int]]:
    """The pairs with the greatest sum, by a table of the sums of all beginnings."""
    sums = np.zeros((len(before) + 1, len(after) + 1), np.int32)
    for place, label in enumerate(before):
        same = after == label
        worth = same[:, 0] * (_OPERATOR_COUNTS + same[:, 1:].sum(1, dtype=np.int32))
        paired = np.where(same[:, 0], sums[place, :-1] + worth, 0)
        sums[place + 1, 1:] = np.maximum.accumulate(np.maximum(sums[place, 1:], paired))
    pairs = []
    old, new = len(before), len(after)
    while old and new:
        if sums[old, new] == sums[old - 1, new]:
            old -= 1
        elif sums[old, new] == sums[old, new - 1]:
            new -= 1
        else:
            old, new = old - 1, new - 1
            pairs.append((old, new))
    return pairs[::-1]
