"""A plan on a device: a flat list of raw handles that is replayed at every call."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, islice
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from pteron.gpu.buffers import Buffer
from pteron.gpu.commands import BoundLaunch, Replay
from pteron.gpu.device import Device
from pteron.gpu.memory import Arena, States, Weights
from pteron.ops.operand import State, Weight
from pteron.ops.terms import Affine, Symbol
from pteron.plan import Advance, Launch, Plan, PlanBuffer, ScratchRef
from pteron.plan.advance import ADVANCE, GROWTHS, Growth
from pteron.wgsl import compose

_REPLAYS_KEPT = 64  # of a sequence, the latest: each has its places and grids
_LAUNCHES_KEPT = 2048  # in these; 200 bytes each
_LAUNCH_BYTES = 4096  # host memory of a plan for each launch, with its parameters and bind group
BLOCK_STRIDE = 256  # bytes between parameter blocks: the largest alignment of uniform bindings


@dataclass(frozen=True, slots=True)
class ParameterAdvance:
    """How a plan's parameters change between the steps of a loop, and the dispatches that update them."""

    advance: Advance
    increments: tuple[WordIncrements, ...]
    replay: Replay

    @property
    def single_buffer(self) -> WordIncrements | None:
        """The increments, if all are in one buffer: then another kernel of the step can add them."""
        fits = len(self.increments) == 1 and self.increments[0].count <= GROWTHS
        return self.increments[0] if fits else None


Places: TypeAlias = Mapping[PlanBuffer, Buffer]  # buffers that replace a plan's own
Tensors: TypeAlias = Mapping[PlanBuffer, tuple[int, int]]  # count of words that grow, increment at every step


# Of a replay: its places, how many launches it has, its grids, and the dims that buffers' places follow.
ReplayKey: TypeAlias = tuple[tuple[tuple[PlanBuffer, Buffer], ...], int | None, tuple[int, ...], object]


@dataclass(frozen=True, slots=True)
class Filling:
    """What follows live terms in a plan, as one matrix: words of parameter blocks, and grids."""

    dims: tuple[int, ...]  # the live dims, by their index on the tape
    data: npt.NDArray[np.uint32]  # of all blocks
    places: npt.NDArray[np.intp]  # of the words that follow live terms
    words: Affines
    sizes: Affines  # the sizes of grids that do, each once
    launches: tuple[tuple[tuple[bool, int], ...], ...]  # of each grid: (is live, its index or its size)

    @classmethod
    def of(cls, plan: Plan) -> Filling:
        data = b"".join(block.data.ljust(BLOCK_STRIDE, b"\0") for block in plan.blocks)
        words = [
            ((number * BLOCK_STRIDE + offset) // 4, expression)
            for number, block in enumerate(plan.blocks)
            for offset, expression in block.live
        ]
        sizes: dict[Affine, int] = {}
        launches = tuple(
            tuple(
                (True, sizes.setdefault(size, len(sizes))) if isinstance(size, Affine) else (False, size)
                for size in launch.groups
            )
            for launch in plan.launches
        )
        return cls(
            tuple(index for index, term in enumerate(plan.tape) if isinstance(term, Symbol) and term.is_dim),
            np.frombuffer(data, np.uint32),
            np.array([place for place, _ in words], np.intp),
            Affines.of([expression for _, expression in words], len(plan.tape)),
            Affines.of(list(sizes), len(plan.tape)),
            launches,
        )

    def blocks(self, numbers: Sequence[int], count: int) -> bytes:
        """The first blocks, all live ones at least, where the live terms have these numbers. The plan's
        guards keep words in range."""
        filled = self.data[: count * BLOCK_STRIDE // 4].copy()
        if len(self.places):
            filled[self.places] = self.words.at(numbers).astype(np.uint32)
        return filled.tobytes()

    def grids(self, numbers: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.sizes.at(numbers).tolist())

    def launched(self, grids: Sequence[int]) -> list[list[int]]:
        """The grid of each launch."""
        return [[grids[value] if live else value for live, value in launch] for launch in self.launches]


@dataclass(frozen=True, slots=True)
class Affines:
    """Several expressions of live terms."""

    constants: npt.NDArray[np.int64]
    factors: npt.NDArray[np.int64]  # [expression, term]

    @classmethod
    def of(cls, expressions: Sequence[Affine], terms: int) -> Affines:
        factors = np.zeros((len(expressions), terms), np.int64)
        for row, expression in zip(factors, expressions, strict=True):
            for term, factor in expression.terms:
                row[term] = factor
        return cls(np.array([expression.constant for expression in expressions], np.int64), factors)

    def at(self, numbers: Sequence[int]) -> npt.NDArray[np.int64]:
        """Their values; sums wrap, as the words of parameters do."""
        return self.constants + self.factors @ np.array(numbers, np.int64)


class Recording:
    """Everything a plan needs on the device. A replay makes no lookups and no allocations.

    Sequences share all of it except the bindings of their states, so each has its own launches.
    """

    def __init__(
        self, device: Device, plan: Plan, arena: Arena, weights: Weights, numbers: Sequence[int]
    ) -> None:
        self.plan = plan
        self.dispatches = len(plan.launches)
        self._device = device
        self._arena = arena
        self._weights = weights
        self._scratch = arena.reserve(plan)
        self._live = plan.live_blocks
        self._moving = any(launch.moves for launch in plan.launches)
        self._written: bytes | None = None
        self._filling = Filling.of(plan)
        self.numbers: Sequence[int] = numbers  # of the live terms that the parameters and grids are for
        self.dims: tuple[int, ...] = ()  # the sizes of live dims among them
        self._grids: tuple[int, ...] = ()
        self._set_dims(numbers)
        buffers = [buffer for launch in plan.launches for buffer in launch.buffers]
        modules = [launch.module for launch in plan.launches]
        self._pipelines = device.pipelines(modules, partial(weights.upload, buffers))
        self.bytes = _LAUNCH_BYTES * self.dispatches
        self.kernels = {(module.source, module.bounds_checks) for module in modules}
        self._parameters = self._create_parameters(numbers)
        # Bind groups that sequences share, made at the first replay: a plan may never be replayed, as the one
        # at the maximum shapes, which has thousands of launches on a software adapter.
        self._shared: dict[int, list[Any]] = {}
        self._unbound = enumerate(plan.launches)  # those after the last of `_shared`
        self._replays: WeakKeyDictionary[States, OrderedDict[ReplayKey, Replay]] = WeakKeyDictionary()
        self._own: WeakKeyDictionary[States, dict[object, list[list[Any]]]] = WeakKeyDictionary()
        self._advances: dict[object, ParameterAdvance | None] = {}
        self._accesses: dict[PlanBuffer, set[str]] = {}
        for launch in plan.launches:
            for binding, reference in zip(launch.module.bindings, launch.buffers, strict=True):
                self._accesses.setdefault(reference, set()).add(binding.access)

    def replay(self, states: States | None = None, places: Places | None = None) -> Replay:
        """The launches bound to a sequence's states; `states` is None if the plan has none. `places` replaces
        buffers, including inputs that the plan only reads."""
        if states is None:
            return self._bound(None, {})
        return self._kept(states, places or {}, None)

    def replay_states(self, states: States) -> Replay:
        """The launches up to the last that writes a state: what later calls depend on, without outputs."""
        return self._kept(states, {}, self._count_of_states)

    @cached_property
    def _count_of_states(self) -> int | None:
        writes = [
            index
            for index, launch in enumerate(self.plan.launches)
            for binding, buffer in zip(launch.module.bindings, launch.buffers, strict=True)
            if isinstance(buffer, State) and binding.access == "read_write"
        ]
        return max(writes) + 1 if writes else None

    def _kept(self, states: States, places: Places, count: int | None) -> Replay:
        """The replay of the first launches, or all; the latest of each sequence are kept."""
        replays = self._replays.setdefault(states, OrderedDict())
        place = tuple(places.items())
        key = place, count, self._grids, self._moving and self.dims
        if key in replays:
            replays.move_to_end(key)
            return replays[key]
        replays[key] = self._bound(states, places, count)
        if len(replays) > min(_REPLAYS_KEPT, max(2, _LAUNCHES_KEPT // max(1, len(self.plan.launches)))):
            (dropped, *_), _ = replays.popitem(last=False)
            if dropped and all(dropped != other for other, *_ in replays):
                del self._own[states][dropped]
        return replays[key]

    def touches(self, buffer: PlanBuffer) -> bool:
        """Whether any dispatch reads or writes a buffer."""
        return buffer in self._accesses

    def only_reads(self, buffer: PlanBuffer) -> bool:
        """Whether the plan leaves a buffer unchanged."""
        return self._accesses.get(buffer, set()) <= {"read", "uniform"}

    def advance(self, growth: Growth, tensors: Tensors) -> ParameterAdvance | None:
        """How live parameters and 32-bit integer inputs change between the steps of a loop; None if only the
        host can compute the change."""
        key = tuple(growth.items()), tuple(tensors.items())
        if key not in self._advances:
            self._advances[key] = self._create_advance(growth, tensors)
        return self._advances[key]

    def note_parameters(self, numbers: Sequence[int] | None) -> None:
        """Note the live parameters that the GPU has after a submission that advances them; None: unknown."""
        self._written = None if numbers is None else self._filled(numbers, self._live)

    def refresh(self, numbers: Sequence[int]) -> bool:
        """Update the live parameters, and the grids of the next replays. Returns whether a write was
        necessary."""
        is_new = False
        if self._live:
            data = self._filled(numbers, self._live)
            if is_new := data != self._written:
                self.dims, self._written = (), None  # unknown if the write fails
                self._device.write(self._parameters, data)
                self._written = data
        self._set_dims(numbers)
        return is_new

    def close(self) -> None:
        """Free the parameters and leave the kernels; the other buffers have other owners."""
        self._pipelines.clear()
        self._replays.clear()
        self._own.clear()
        self._shared.clear()
        self._advances.clear()
        if self._parameters is not None:
            self._device.free(self._parameters)

    def _create_parameters(self, numbers: Sequence[int]) -> Buffer | None:
        if not self.plan.blocks:
            return None
        data = self._filled(numbers, len(self.plan.blocks))
        buffer = self._device.create_buffer(len(data), "parameters", uniform=True)
        self._device.write(buffer, data)
        self._written = data[: self._live * BLOCK_STRIDE]
        return buffer

    def _filled(self, numbers: Sequence[int], count: int) -> bytes:
        return self._filling.blocks(numbers, count)

    def _set_dims(self, numbers: Sequence[int]) -> None:
        self.numbers = numbers
        if self._filling.dims:
            dims = tuple([numbers[term] for term in self._filling.dims])
            if dims != self.dims:
                self.dims, self._grids = dims, self._filling.grids(numbers)

    def _create_advance(self, growth: Growth, tensors: Tensors) -> ParameterAdvance | None:
        advance = Advance.of(self.plan, growth)
        read = {buffer: words for buffer, words in tensors.items() if self.touches(buffer)}
        if advance is None or not all(map(self.only_reads, read)):
            return None
        grown = [
            (self._buffer(buffer, None, {}), [(index, by) for index in range(count)])
            for buffer, (count, by) in read.items()
        ]
        words = [(block * BLOCK_STRIDE + offset, by) for block, offset, by in advance.words]
        if words:
            grown.append((self._parameters, [(place // 4, by) for place, by in words]))
        increments = tuple(WordIncrements.of(self._device, buffer, growths) for buffer, growths in grown)
        return ParameterAdvance(advance, increments, increment_replay(self._device, increments))

    def bind_shared(self, seconds: float = math.inf) -> bool:
        """Make the bind groups that sequences share, for that long; returns whether all are there."""
        end = time.perf_counter() + seconds
        for index, launch in self._unbound:
            if not launch.moves and not any(isinstance(buffer, State) for buffer in launch.buffers):
                self._shared[index] = self._bind(index, launch, None, {})
                if time.perf_counter() > end:
                    return False
        return True

    def _bound(self, states: States | None, places: Places, count: int | None = None) -> Replay:
        """The first launches, or all, except those of no workgroup: shared bind groups, and new ones for
        launches that use states or `places`."""
        self.bind_shared()
        key = tuple(places.items())
        own = self._own.setdefault(states, {}) if states is not None else {}
        if key not in own:
            own[key] = [
                self._shared[index]
                if index in self._shared and (not places or places.keys().isdisjoint(launch.buffers))
                else []
                if launch.moves
                else self._bind(index, launch, states, places)
                for index, launch in enumerate(self.plan.launches)
            ]
        bound, launches = [], []
        each = zip(self.plan.launches, own[key], self._filling.launched(self._grids), strict=True)
        for index, (launch, kept, grid) in enumerate(islice(each, count)):
            if 0 not in grid:
                made = kept or self._bind(index, launch, states, places)
                bound.append(made)
                launches.append((made[0]._internal, made[1], *grid))
        return Replay(launches, list(dict.fromkeys(chain.from_iterable(bound))))

    def _bind(self, index: int, launch: Launch, states: States | None, places: Places) -> list[Any]:
        """The pipeline and bind group of a launch, and the bound buffers."""
        module, pipeline = launch.module, self._pipelines[index]
        starts = dict(launch.starts)
        entries: list[tuple[int, Buffer, int, int]] = []
        for binding, reference in zip(module.bindings, launch.buffers, strict=True):
            buffer = self._buffer(reference, states, places)
            is_state = isinstance(reference, State) and states is not None and reference not in places
            part = states.part(reference) if is_state else None  # type: ignore[union-attr, arg-type]
            first, size = part or (0, buffer.size)
            start = starts.get(binding.name, 0)
            start = start.evaluate(self.numbers) if isinstance(start, Affine) else start
            entries.append((binding.index, buffer, first + start, binding.bytes or size - start))
        if launch.block is not None:
            assert module.params_index is not None
            offset = launch.block * BLOCK_STRIDE
            entries.append((module.params_index, self._parameters, offset, module.params_size))
        group = self._device.bind_group(pipeline, entries, f"binding the buffers of {launch}")
        return [pipeline, group, *(buffer for _, buffer, _, _ in entries)]

    def _buffer(self, reference: PlanBuffer, states: States | None, places: Places) -> Buffer:
        if places and reference in places:
            return places[reference]
        if isinstance(reference, Weight):
            return self._weights[reference]
        if isinstance(reference, State):
            assert states is not None
            return states[reference]
        return self._scratch[reference.index] if isinstance(reference, ScratchRef) else self._arena[reference]


@dataclass(frozen=True, slots=True)
class WordIncrements:
    """Words of one buffer and their increments: `count` pairs of word index and increment, padded with zeros
    to GROWTHS pairs."""

    words: Buffer
    growths: Buffer
    count: int

    @classmethod
    def of(cls, device: Device, words: Buffer, growths: Sequence[tuple[int, int]]) -> WordIncrements:
        data = np.array(growths, np.int64).astype(np.uint32)  # negative increments wrap, and so do the sums
        places = device.create_buffer(8 * max(len(growths), GROWTHS), "growth of parameters")
        device.write(places, data)
        return cls(words, places, len(growths))


def increment_replay(device: Device, increments: Sequence[WordIncrements]) -> Replay:
    """Dispatches that add increments to their words, one workgroup for each word."""
    pipeline = device.pipeline(compose(ADVANCE))
    bound: list[Any] = [
        device.bind_group(
            pipeline,
            [(0, each.growths, 0, each.growths.size), (1, each.words, 0, each.words.size)],
            "binding the parameters of a loop",
        )
        for each in increments
    ]
    launches: list[BoundLaunch] = [
        (pipeline._internal, group, each.count, 1, 1) for group, each in zip(bound, increments, strict=True)
    ]
    buffers = [buffer for each in increments for buffer in (each.growths, each.words)]
    return Replay(launches, [pipeline, *bound, *buffers])
