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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pteron.graph import Constant, Graph
from pteron.graph.values import tensors
from pteron.ops import Call, Operand, Target, Weight, Window
from pteron.ops.dispatch import Bound, elements
from pteron.ops.join import memory_of
from pteron.passes import prepare
from pteron.plan import Compiled, Plan, Shapes
from pteron.plan.collect import Collected
from pteron.plan.planner import Planning
from pteron.tools.profile.families import family_of_kernel, family_of_operator
from pteron.tools.profile.operations import operations
from pteron.tools.profile.touched import COPYING, Limits, Memory, limits_of


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


def work_of(graph: Graph, target: Target, shapes: Shapes, values: Mapping[int, int]) -> list[LaunchWork]:
    """The work of the launches of a graph's plan, in their order."""
    compiled = Compiled(prepare(graph), target)
    collected = compiled.walk(shapes, values).collector.launches
    plain = Compiled(prepare(graph, ()), target)  # as the file has it: all its tensors have live shapes there
    planned = plain.walk(shapes, values)
    calls = plain.prepared.each
    limits = limits_of(calls, planned, compiled.placement, target)
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


def _bytes(launch: Collected, limits: Limits) -> _Bytes:
    read: dict[Memory, int] = defaultdict(int)
    written: dict[Memory, int] = defaultdict(int)
    constants: dict[Constant, int] = defaultdict(int)
    bindings = [(binding, launch.dispatch.bindings[binding.name]) for binding in launch.module.bindings]
    copied = sum(elements(bound) for binding, bound in bindings if binding.access == "read_write")
    is_copy = family_of_kernel(launch.module.kernel) in COPYING
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
