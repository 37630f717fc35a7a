"""A graph -> the families of its operators and kernels, and its repeated parts: the layers of a model.

`layers_of` finds layers for tables, by nodes with weights. `find_repetitions` finds blocks of nodes to fold
in a drawing: the longest stretch in which every operator recurs one period later, with neighbours that have a
few extra nodes, such as the first layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

import pteron.families  # noqa: F401  # registers all operators
from pteron.graph import Graph, SymInt, Tensor, Value, ValueList
from pteron.graph.values import numel, tensors
from pteron.ops import OPERATORS
from pteron.plan.layers import Labels, longest_repetition
from pteron.wgsl import Kernel

Block: TypeAlias = tuple[int, int]  # nodes [first, end)
Flow: TypeAlias = tuple[Sequence[int], Sequence[int]]  # the values that a node reads, and those it writes

_FAMILIES = "pteron.families."
_COVERED_MIN = 0.5  # share of the nodes with weights that layers must cover
_PERIOD_MIN, _PERIOD_MAX = 4, 2000  # nodes of a block
_REPETITIONS_MAX = 8
_EXTRA = 4  # a neighbouring block may have one extra node per this many


def family_of_kernel(kernel: Kernel) -> str:
    """The folder of the kernel."""
    return kernel.package.removeprefix(_FAMILIES).rpartition(".")[2]


@cache
def family_of_operator(name: str) -> str | None:
    """The folder of the function that computes an operator; None for an unknown operator."""
    if name not in OPERATORS:
        return None
    compute: Any = OPERATORS[name].compute
    while isinstance(compute, partial):
        compute = compute.func
    module = str(compute.__module__)
    return module.removeprefix(_FAMILIES).partition(".")[0] if module.startswith(_FAMILIES) else None


def leaves(*values: Value) -> Iterator[Tensor | SymInt]:
    """The tensors and live integers in values and their lists."""
    for value in values:
        for item in value.items if isinstance(value, ValueList) else (value,):
            if isinstance(item, (Tensor, SymInt)):
                yield item


# Layers -----------------------------------------------------------------------------------------


def layers_of(graph: Graph) -> dict[int, int]:
    """Node index -> layer, by the longest repetition if it covers most of the graph.

    Only nodes with weights or caches (not scalars) count, since the first layer may compute values that the
    others share. Nodes are equal if they have the same operator, dtypes and maximum shapes. A layer extends
    to the start of the next one.
    """
    numbers: dict[object, int] = {}
    places, labels = [], []
    for place, node in enumerate(graph.nodes):
        found = [tensor for value in node.args for tensor in tensors(value)]
        if any(tensor.constant is not None and numel(tensor.shape_max) > 1 for tensor in found):
            types = [[(tensor.dtype, tensor.shape_max) for tensor in tensors(value)] for value in node.args]
            places.append(place)
            labels.append(numbers.setdefault((node.name, str(types)), len(numbers)))
    first, period, count = longest_repetition(np.array(labels, np.int64))
    if count < 2 or period * count < _COVERED_MIN * len(labels):
        return {}
    ends = [*places, len(graph.nodes)]
    borders = [ends[first + period * layer] for layer in range(count + 1)]
    layers = (graph.nodes[begin:end] for begin, end in pairwise(borders))
    return {node.index: layer for layer, nodes in enumerate(layers) for node in nodes}


# Blocks of nodes --------------------------------------------------------------------------------


def find_repetitions(operators: Sequence[str], flow: Sequence[Flow]) -> tuple[tuple[Block, ...], ...]:
    """The repetitions of a graph, each as its blocks of equal work in order; none overlap."""
    names = {name: index for index, name in enumerate(dict.fromkeys(operators))}
    labels = np.array([names[name] for name in operators], np.int64)
    found: list[tuple[Block, ...]] = []
    pieces = [(0, len(labels))]
    while pieces and len(found) < _REPETITIONS_MAX:
        first, end = pieces.pop()
        start, period, count = longest_repetition(labels[first:end], _PERIOD_MIN, _PERIOD_MAX, varied=True)
        if not count:
            continue
        starts = _cuts(first + start, period, count, end, labels, flow)
        blocks = max((_with_neighbours(start, period, labels, first, end) for start in starts), key=len)
        found.append(tuple(blocks))
        pieces += [(first, blocks[0][0]), (blocks[-1][1], end)]
    return tuple(sorted(found))


def _cuts(start: int, period: int, count: int, end: int, labels: Labels, flow: Sequence[Flow]) -> list[int]:
    """The starts, within one period, at which the fewest values cross from a block to the next."""
    reach = start + period * count
    while reach < end and labels[reach] == labels[reach - period]:
        reach += 1
    starts = range(start, min(start + period, reach - 2 * period + 1))

    def crossing(first: int) -> int:
        written = {value for _, writes in flow[first : first + period] for value in writes}
        read = {value for reads, _ in flow[first + period : first + 2 * period] for value in reads}
        return len(written & read)

    counts = {first: crossing(first) for first in starts}
    return [first for first, crossed in counts.items() if crossed == min(counts.values())]


def _with_neighbours(start: int, period: int, labels: Labels, first: int, end: int) -> list[Block]:
    """All blocks from a start on, and the neighbours on both sides with a few extra nodes."""
    blocks = [(start, start + period)]
    template = labels[start : start + period]
    while (begin := blocks[-1][1]) + period <= end and (labels[begin : begin + period] == template).all():
        blocks.append((begin, begin + period))
    while (length := _similar(template[::-1], labels[first : blocks[0][0]][::-1])) is not None:
        blocks.insert(0, (blocks[0][0] - length, blocks[0][0]))
    while (length := _similar(template, labels[blocks[-1][1] : end])) is not None:
        blocks.append((blocks[-1][1], blocks[-1][1] + length))
    return blocks


def _similar(template: Labels, labels: Labels) -> int | None:
    """How many of the first labels contain the template in order, with at most a few others in between."""
    position, extra = 0, len(template) // _EXTRA
    for length, label in enumerate(labels.tolist(), start=1):
        if label == template[position]:
            position += 1
            if position == len(template):
                return length
        elif length - position > extra:
            return None
    return None
