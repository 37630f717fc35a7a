"""The layers of a graph, found by what repeats in it: whatever a model is called, its layers are alike."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pteron.graph import Graph, Node
from pteron.graph.values import numel, tensors

_COVERED = 0.5  # of the nodes with weights: what repeats less is no model of layers


def layers_of(graph: Graph) -> dict[int, int]:
    """Node index -> layer, by the longest run of equal stretches of nodes, if it is most of the graph.

    Only nodes that take weights or caches are looked at, since a first layer may make what all others use
    too. They are alike where they call one operator on tensors of one type and maximum shape. A layer goes on
    until the next one, or other weights, begin.
    """
    places = [place for place, node in enumerate(graph.nodes) if _has_constants(node)]
    numbers: dict[object, int] = {}
    kinds = [numbers.setdefault(_kind(graph.nodes[place]), len(numbers)) for place in places]
    first, period, count = longest_repetition(np.array(kinds, np.int64))
    if count < 2 or period * count < _COVERED * len(kinds):
        return {}
    ends = [*places, len(graph.nodes)]
    borders = [ends[first + period * layer] for layer in range(count + 1)]
    return {
        node.index: layer
        for layer, (begin, end) in enumerate(pairwise(borders))
        for node in graph.nodes[begin:end]
    }


def longest_repetition(kinds: npt.NDArray[np.int64]) -> tuple[int, int, int]:
    """Where the stretch that repeats begins, its length, and how often it stands there; of those that cover
    as much, the shortest."""
    best = (0, 0, 0)
    for period in range(1, len(kinds) // 2 + 1):
        alike = np.concatenate(([False], kinds[period:] == kinds[:-period], [False]))
        edges = np.flatnonzero(alike[1:] != alike[:-1])
        for first, last in zip(edges[::2], edges[1::2], strict=True):
            count = int(last - first) // period + 1
            if count > 1 and count * period > best[1] * best[2]:
                best = int(first), period, count
    return best


def _has_constants(node: Node) -> bool:
    """Scalars that lie in the file as tensors are none that count."""
    found = (tensor for value in node.args for tensor in tensors(value))
    return any(tensor.constant is not None and numel(tensor.shape_max) > 1 for tensor in found)


def _kind(node: Node) -> object:
    types = [[(tensor.dtype, tensor.shape_max) for tensor in tensors(value)] for value in node.args]
    return node.name, str(types)
