"""Layers: calls of a graph that repeat as a block, such as those of a language model.

Once a block ends as the block before it ended, the launches of the next are its own with other weights,
states and slots, so 80 layers are planned nearly as fast as a few. `layers_of` finds the blocks of a graph, a
`Replay` makes the launches of one from those of another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pteron.graph import Constant, Tensor, ValueList
from pteron.graph.values import tensors
from pteron.ops import Call, Kind, Weight
from pteron.ops.operand import BufferRef
from pteron.passes import Placement
from pteron.plan.collect import Collected
from pteron.plan.copy_elision import CopyElision
from pteron.plan.plan import PlanBuffer, ScratchRef

BLOCKS_LEAST = 3  # one of them is planned
_PERIOD_MAX = 500  # calls of a block
Labels: TypeAlias = npt.NDArray[np.int64]
Key: TypeAlias = tuple[Any, ...]


class Layers:
    """Blocks of calls that are alike but for their tensors, one after another."""

    def __init__(
        self, calls: Sequence[Call], placement: Placement, first: int, period: int, count: int
    ) -> None:
        self.first = first  # call
        self.period = period  # calls of a block
        self.count = count  # blocks
        self._calls = calls
        self._placement = placement
        self._replays: dict[tuple[int, int], Replay] = {}
        self._ends: dict[int, Replay] = {}  # from the block before each to that block

    @property
    def end(self) -> int:
        return self.first + self.period * self.count

    def block(self, number: int) -> Sequence[Call]:
        start = self.first + self.period * number
        return self._calls[start : start + self.period]

    def replay(self, old: int, new: int) -> Replay:
        """From a block to another. Each is seen with the block before it, whose last launch it may join."""
        if (old, new) not in self._replays:
            mine, other = ((*self.block(number - 1), *self.block(number)) for number in (old, new))
            self._replays[old, new] = Replay(mine, other, self._placement)
        return self._replays[old, new]

    def ends_alike(self, number: int, before: Sequence[Collected], last: Sequence[Collected]) -> bool:
        """Whether a block ends with the launch that the block before it ended with, but for tensors. Then the
        next block begins as this one began."""
        if number not in self._ends:
            self._ends[number] = Replay(self.block(number - 1), self.block(number), self._placement)
        replay = self._ends[number]
        return all(map(replay.has, before)) and replay.leads(before, last)


def layers_of(calls: Sequence[Call], placement: Placement, elision: CopyElision) -> tuple[Layers, ...]:
    """The layers of a graph, in order."""
    numbers: dict[Key, int] = {}
    labels = np.array([numbers.setdefault(_key(call), len(numbers)) for call in calls], np.int64)
    facts, found, pieces = _Facts(calls, placement, elision), list[Layers](), [(0, len(calls))]
    while pieces:
        begin, end = pieces.pop()
        longest = min((end - begin) // BLOCKS_LEAST, _PERIOD_MAX)
        start, period, count = longest_repetition(labels[begin:end], period_max=longest)
        if count < BLOCKS_LEAST:
            continue
        first, last = begin + start, begin + start + period * count
        starts = range(first + period, last, period)  # the first block has none before it
        for _, group in groupby(starts, key=lambda start: facts.of(start, period)):
            alike = list(group)
            if len(alike) >= BLOCKS_LEAST and facts.repeat(alike[0], period):
                found.append(Layers(calls, placement, alike[0], period, len(alike)))
        pieces += [(begin, first), (last, end)]
    return tuple(sorted(found, key=lambda layers: layers.first))


def longest_repetition(
    labels: Labels, period_min: int = 1, period_max: int | None = None, *, varied: bool = False
) -> tuple[int, int, int]:
    """The start, period and count of the repetition that covers most labels, the shortest period of equals;
    (0, 0, 0) if there is none. `varied` skips repetitions of a single label."""
    best = (0, 0, 0)
    longest = len(labels) // 2 if period_max is None else min(len(labels) // 2, period_max)
    for period in range(period_min, longest + 1):
        is_equal = np.concatenate(([False], labels[period:] == labels[:-period], [False]))
        edges = np.flatnonzero(is_equal[1:] != is_equal[:-1])
        starts, lengths = edges[::2], edges[1::2] - edges[::2]
        for start, length in zip(starts[lengths >= period], lengths[lengths >= period], strict=True):
            count = int(length) // period + 1
            if count * period <= best[1] * best[2]:
                continue
            if not varied or (labels[start : start + period] != labels[start]).any():
                best = int(start), period, count
    return best


def _key(call: Call) -> Key:
    """What calls of two blocks have in common at least."""
    return call.operator.name, *(_type(value) for value in (*call.inputs, *call.outputs))


def _type(value: object) -> object:
    if isinstance(value, Tensor):
        return value.dtype, value.shape_max
    return type(value)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What plans depend on beside shapes."""

    calls: Sequence[Call]
    placement: Placement
    elision: CopyElision

    def repeat(self, start: int, period: int) -> bool:
        """Whether a block has tensors only: live integers are computed one by one."""
        kinds = (Kind.SCALAR, Kind.SOURCE)
        return not any(call.operator.kind in kinds for call in self.calls[start : start + period])

    def of(self, start: int, period: int) -> Key:
        """A block and the one before: which of their tensors and buffers are the same, when they are read
        last, and all other arguments."""
        numbers: dict[object, int] = {}
        window = self.calls[start - period : start + period]
        return tuple(
            (
                call.operator.name,
                len(call.nodes),
                *self._values((call.inputs, call.outputs), numbers, start, period),
            )
            for call in window
        )

    def _values(self, values: Any, numbers: dict[object, int], start: int, period: int) -> Iterator[Any]:
        for value in values:
            if isinstance(value, Tensor):
                buffer = self.placement.buffers[value.id]
                memory = buffer.constant if isinstance(buffer, Weight) else buffer
                last = self.elision.last_read(value)
                yield (
                    *(
                        value.dtype,
                        value.shape_max,
                        type(buffer),
                        None if last is None else min(last - start, 2 * period),
                    ),
                    *(numbers.setdefault(each, len(numbers)) for each in (("tensor", value.id), memory)),
                )
            elif isinstance(value, (tuple, ValueList)):
                items = value.items if isinstance(value, ValueList) else value
                yield tuple(self._values(items, numbers, start, period))
            else:
                yield type(value), str(value)


class Replay:
    """From one window of layers to another: the buffers, constants and nodes in the place of others."""

    def __init__(self, old: Sequence[Call], new: Sequence[Call], placement: Placement) -> None:
        pairs = [pair for a, b in zip(old, new, strict=True) for pair in _pairs(a, b)]
        self.tensors = list({a.id: (a, b) for a, b in pairs}.values())
        made = {tensor.id for call in new for tensor in call.writes}
        self.made = [(a.id, b.id) for a, b in self.tensors if b.id in made]
        read = [(a.id, b.id) for a, b in self.tensors if b.id not in made and a.id != b.id]
        self.read = [pair for pair in read if not isinstance(placement.buffers[pair[1]], Weight)]
        self._buffers: dict[BufferRef, BufferRef] = {}
        self._constants: dict[int, Constant] = {}
        self._calls = {a.node.index: b for a, b in zip(old, new, strict=True)}
        self._nodes = {
            i: j for a, b in zip(old, new, strict=True) for i, j in zip(a.nodes, b.nodes, strict=True)
        }
        for a, b in self.tensors:
            mine, other = placement.buffers[a.id], placement.buffers[b.id]
            if isinstance(mine, Weight) and isinstance(other, Weight):
                self._constants[id(mine.constant)] = other.constant
            else:
                self._buffers[mine] = other

    def has(self, launch: Collected) -> bool:
        """Whether a launch does the work of its calls only."""
        return launch.nodes <= self._nodes.keys()

    def leads(self, old: Sequence[Collected], new: Sequence[Collected]) -> bool:
        """Whether it makes some launches from others."""
        return len(old) == len(new) and all(map(_is_same, self.launches(old), new))

    def launches(self, old: Iterable[Collected]) -> Iterator[Collected]:
        """Launches with other buffers. Their dispatches stay: plans take from them only what layers share."""
        sets: dict[int, frozenset[int]] = {}
        for node, dispatch, module, buffers, block, groups, nodes in old:
            if id(nodes) not in sets:
                sets[id(nodes)] = frozenset([self._nodes[each] for each in nodes])
            others = tuple([self._buffer(each) for each in buffers])
            made = self._calls[node.index].node
            yield Collected(made, dispatch, module, others, block, groups, sets[id(nodes)])

    def _buffer(self, old: PlanBuffer) -> PlanBuffer:
        if isinstance(old, Weight):
            return self._weight(old)
        return old if isinstance(old, ScratchRef) else self._buffers.get(old, old)

    def _weight(self, old: Weight) -> Weight:
        constant = self._constants.get(id(old.constant), old.constant)
        rest = tuple(map(self._weight, old.rest)) if old.rest else ()
        return Weight(constant, old.shape, old.layout, old.arguments, old.count, old.storage, rest)


def _pairs(old: Call, new: Call) -> Iterator[tuple[Tensor, Tensor]]:
    for a, b in zip((*old.inputs, *old.outputs), (*new.inputs, *new.outputs), strict=True):
        yield from zip(tensors(a), tensors(b), strict=True)


def _is_same(a: Collected, b: Collected) -> bool:
    is_like = a.module is b.module and a.block is b.block and a.groups is b.groups
    return is_like and (a.node, a.buffers, a.nodes) == (b.node, b.buffers, b.nodes)
