"""The bytes and operations of every launch of a graph's plan at live shapes.

Bytes are those of what a launch binds, each buffer once: what it binds for reading is read, what it binds for
writing is written. Of a tensor that is its bytes at the live shape, of a weight those of its packed form.
Less is counted where an operator touches less: of a cache the positions that are filled, or that are written;
of an embedding's table, or one that is sliced, the rows that are picked; by layout and index operators, as
much as they write.
Nothing is counted twice that several workgroups read, nor parameters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from pteron.graph import Constant, Graph, Tensor, Value
from pteron.graph.values import numel, tensors
from pteron.ops import Call, Operand, Scratch, Target, Weight, Window
from pteron.ops.dispatch import Bound, elements
from pteron.ops.join import memory_of
from pteron.ops.operand import BufferRef, State
from pteron.passes import Placement, prepare
from pteron.plan import Compiled, Plan, Shapes
from pteron.plan.collect import Collected
from pteron.plan.planning import Planning
from pteron.tools.profile.families import family_of_kernel, family_of_operator
from pteron.tools.profile.operations import live, operations

Memory: TypeAlias = BufferRef | Scratch
_COPYING = ("layout", "index")  # families that read no more of a tensor than they write


@dataclass(frozen=True, slots=True)
class LaunchWork:
    """What a launch does: the operator of its nodes that it does most of, bytes, operations."""

    operator: str
    bytes_read: int
    bytes_written: int
    operations: float | None


@dataclass(frozen=True, slots=True)
class _Bytes:
    read: int
    written: int
    constants: Mapping[Constant, int]  # how much of each is bound


@dataclass(frozen=True, slots=True)
class _Limits:
    """How much operators touch of what their launches bind."""

    cache_read: Mapping[Memory, int]
    cache_written: Mapping[Memory, int]
    parts: Mapping[Constant, Mapping[int, float]]  # the part of it that each node reads

    def part(self, constant: Constant, nodes: Collection[int]) -> float:
        """Which part of a constant is read by launches of these nodes. Where none of them takes it, they read
        what others pick of it."""
        of_nodes = self.parts.get(constant, {})
        own = [part for node, part in of_nodes.items() if node in nodes]
        return max(own or of_nodes.values(), default=1.0)


def work_of(graph: Graph, target: Target, shapes: Shapes, values: Mapping[int, int]) -> list[LaunchWork]:
    """The work of the launches of a graph's plan, in their order."""
    compiled = Compiled(prepare(graph), target)
    collected = compiled.walk(shapes, values).collector.launches
    plain = Compiled(prepare(graph, ()), target)  # as the file has it: all its tensors have live shapes there
    planned = plain.walk(shapes, values)
    calls = plain.prepared.each
    limits = _limits(calls, planned, compiled.placement, target)
    moved = [_bytes(launch, limits) for launch in collected]
    done = _operations(calls, planned, collected, moved)
    names = {call.node.index: call.operator.name for call in calls}
    return [
        LaunchWork(
            _operator(launch, done[index], names),
            bytes_.read,
            bytes_.written,
            sum(done[index].values()) or None,
        )
        for index, (launch, bytes_) in enumerate(zip(collected, moved, strict=True))
    ]


def planned_again(graph: Graph, target: Target, shapes: Shapes, values: Mapping[int, int]) -> Plan:
    """A plan made from the start, for the time that takes."""
    return Compiled(prepare(graph), target).plan(shapes, values)


# Bytes ------------------------------------------------------------------------------------------


def _bytes(launch: Collected, limits: _Limits) -> _Bytes:
    read: dict[Memory, int] = defaultdict(int)
    written: dict[Memory, int] = defaultdict(int)
    constants: dict[Constant, int] = defaultdict(int)
    bindings = [(binding, launch.dispatch.bindings[binding.name]) for binding in launch.module.bindings]
    copied = sum(elements(bound) for binding, bound in bindings if binding.access == "read_write")
    is_copy = family_of_kernel(launch.module.kernel) in _COPYING
    for binding, bound in bindings:
        count = elements(bound)
        if is_copy and binding.access != "read_write":
            count = min(count, copied)
        size = count * bound.storage.itemsize
        if binding.bytes:  # a window of it
            size = min(size, binding.bytes)
        weights = [(weight, _own_bytes(weight)) for weight in _weights(bound)]
        if weights and not is_copy:
            parts = [own * limits.part(weight.constant, launch.nodes) for weight, own in weights]
            size = round(size * sum(parts) / max(1, sum(own for _, own in weights)))
        for weight, own in weights:
            constants[weight.constant] += own
        memory = memory_of(bound)
        (written if binding.access == "read_write" else read)[memory] += size
    return _Bytes(
        sum(min(size, limits.cache_read.get(memory, size)) for memory, size in read.items()),
        sum(min(size, limits.cache_written.get(memory, size)) for memory, size in written.items()),
        constants,
    )


def _weights(bound: Bound) -> Iterator[Weight]:
    """The weights in what is bound: several may share a buffer."""
    if isinstance(bound, Window):
        bound = bound.of
    weight = bound.buffer if isinstance(bound, Operand) else bound
    if isinstance(weight, Weight):
        yield weight
        yield from weight.rest


def _own_bytes(weight: Weight) -> int:
    return weight.bytes - sum(following.bytes for following in weight.rest)


def _limits(calls: tuple[Call, ...], planned: Planning, placement: Placement, target: Target) -> _Limits:
    cache_read: dict[Memory, int] = {}
    cache_written: dict[Memory, int] = {}
    parts: dict[Constant, dict[int, float]] = defaultdict(dict)
    for call in calls:
        names = [argument.name for argument in call.operator.signature.inputs]
        inputs = dict(zip(names, call.inputs, strict=True))
        if "start_pos" in inputs:
            start = int(live(inputs["start_pos"], planned))
            steps = int(live(call.inputs[0], planned)[1])
            for cache in call.reads:
                buffer = placement.buffers.get(cache.id)
                if isinstance(buffer, State):
                    row = numel(cache.shape_max) // cache.shape_max[1] * target.storage(cache.dtype).itemsize
                    cache_read[buffer] = max(cache_read.get(buffer, 0), (start + steps) * row)
                    cache_written[buffer] = max(cache_written.get(buffer, 0), steps * row)
        for tensor in call.reads:
            memory = planned.placement.buffers.get(tensor.id)
            if isinstance(memory, Weight):
                parts[memory.constant][call.node.index] = _part(call, inputs, tensor, planned)
    return _Limits(cache_read, cache_written, parts)


def _part(call: Call, inputs: Mapping[str, Value], tensor: Tensor, planned: Planning) -> float:
    """Which part of a constant a call reads: embeddings pick rows, slices and the like what they give."""
    if "embedding" in call.operator.name and tensor.shape_max:
        return min(1.0, numel(live(inputs["indices"], planned)) / tensor.shape_max[0])
    out, whole = call.outputs[0], numel(tensor.shape_max)
    if family_of_operator(call.operator.name) in _COPYING and isinstance(out, Tensor) and whole:
        return min(1.0, numel(live(out, planned)) / whole)
    return 1.0


# Operations -------------------------------------------------------------------------------------


def _operations(
    calls: tuple[Call, ...], planned: Planning, launches: list[Collected], moved: list[_Bytes]
) -> list[dict[str, float]]:
    """By launch: the operations that it does, by operator.

    The work of a node belongs to the launches that bind its weights, by how much of them each binds; where it
    has none, to the one of its family that moves most.
    """
    done: list[dict[str, float]] = [defaultdict(float) for _ in launches]
    for call in calls:
        count = operations(call, planned)
        candidates = [i for i, launch in enumerate(launches) if call.node.index in launch.nodes]
        if not count or not candidates:
            continue
        for index, share in _shares(call, candidates, launches, moved).items():
            done[index][call.operator.name] += share * count
    return done


def _shares(
    call: Call, candidates: list[int], launches: list[Collected], moved: list[_Bytes]
) -> dict[int, float]:
    constants = {tensor.constant for value in call.inputs for tensor in tensors(value) if tensor.constant}
    weight = max(constants, key=lambda constant: len(constant.data), default=None)
    bound = {index: moved[index].constants.get(weight, 0) for index in candidates} if weight else {}
    total = sum(bound.values())
    if total:
        return {index: size / total for index, size in bound.items() if size}
    family = family_of_operator(call.operator.name)
    own = [i for i in candidates if family_of_kernel(launches[i].module.kernel) == family]
    return {max(own or candidates, key=lambda index: moved[index].read): 1.0}


def _operator(launch: Collected, done: Mapping[str, float], names: Mapping[int, str]) -> str:
    """Of a launch's nodes: the operator it does most work of, or the first of its kernel's family."""
    if done:
        return max(done, key=lambda name: done[name])
    family = family_of_kernel(launch.module.kernel)
    own = (names[node] for node in sorted(launch.nodes) if node in names)
    return next((name for name in own if family_of_operator(name) == family), launch.node.name)
