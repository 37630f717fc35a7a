"""The bytes and operations of every launch of a graph's plan at live shapes.

A launch reads the buffers that it binds for reading and writes those that it binds for writing, each once:
tensors at their live shape, weights in their packed form. Less is counted where an operator accesses less: of
a KV cache the filled or written positions; of an embedding table or a sliced constant the selected rows;
layout and index operators read as much as they write. Repeated reads by several workgroups and parameters do
not count. Operations are those of matrix products, convolutions and attention; a multiply-add counts as two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pteron.graph import Constant, Shape, SymInt, Tensor, Value
from pteron.graph.values import numel, tensors
from pteron.ops import Call, Operand, OperandSlice, Scratch, Target, Weight
from pteron.ops.dispatch import Bound, elements
from pteron.ops.operand import BufferRef, State
from pteron.ops.rewrite import memory_of
from pteron.passes import Placement, prepare
from pteron.plan import Compiled, Shapes
from pteron.plan.collect import Collected
from pteron.plan.planner import Planning
from pteron.tools.graph_structure import family_of_kernel, family_of_operator

Memory: TypeAlias = BufferRef | Scratch
COPYING = ("layout", "index")  # families that read as much as they write


@dataclass(frozen=True, slots=True)
class LaunchWork:
    operator: str
    bytes_read: int
    bytes_written: int
    operations: float | None


@dataclass(frozen=True, slots=True)
class _Bytes:
    read: int
    written: int
    constants: Mapping[Constant, int]  # bytes bound of each


def work_of(compiled: Compiled, shapes: Shapes, values: Mapping[int, int]) -> list[LaunchWork]:
    graph, target = compiled.prepared.graph, compiled.target
    collected = compiled.walk(shapes, values).collector.launches
    plain = Compiled(prepare(graph, ()), target)  # without rewrites every tensor of the file has a live shape
    planned = plain.walk(shapes, values)
    calls = plain.prepared.each
    limits = access_limits(calls, planned, compiled.placement, target)
    moved = [_bytes(launch, limits) for launch in collected]
    done = _operations(calls, planned, collected, moved)
    names = {call.node.index: call.operator.name for call in calls}
    return [
        LaunchWork(_operator(launch, own, names), size.read, size.written, sum(own.values()) or None)
        for launch, size, own in zip(collected, moved, done, strict=True)
    ]


# Bytes ------------------------------------------------------------------------------------------


def _bytes(launch: Collected, limits: AccessLimits) -> _Bytes:
    read: dict[Memory, int] = defaultdict(int)
    written: dict[Memory, int] = defaultdict(int)
    constants: dict[Constant, int] = defaultdict(int)
    bindings = [(binding, launch.dispatch.bindings[binding.name]) for binding in launch.module.bindings]
    copied = sum(int(elements(bound)) for binding, bound in bindings if binding.access == "read_write")
    is_copy = family_of_kernel(launch.module.kernel) in COPYING
    for binding, bound in bindings:
        count = int(elements(bound))  # a plain number: no dims were live
        if is_copy and binding.access != "read_write":
            count = min(count, copied)
        size = count * bound.storage.itemsize
        if binding.bytes:  # a window of it
            size = min(size, binding.bytes)
        weights = [(each, each.bytes - sum(rest.bytes for rest in each.rest)) for each in _weights(bound)]
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
    """The weights of a binding: several may share a buffer."""
    if isinstance(bound, OperandSlice):
        bound = bound.of
    weight = bound.buffer if isinstance(bound, Operand) else bound
    if isinstance(weight, Weight):
        yield weight
        yield from weight.rest


# Operations -------------------------------------------------------------------------------------


def _operations(
    calls: tuple[Call, ...], planned: Planning, launches: list[Collected], moved: list[_Bytes]
) -> list[dict[str, float]]:
    """The operations of every launch, by operator.

    The work of a node is split over the launches that bind its largest weight, by the bytes that each binds.
    Without weights it belongs to the launch of its family that reads most.
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
    """The operator with most operations, else the first of the kernel's family."""
    if done:
        return max(done, key=lambda name: done[name])
    family = family_of_kernel(launch.module.kernel)
    own = (names[node] for node in sorted(launch.nodes) if node in names)
    return next((name for name in own if family_of_operator(name) == family), launch.node.name)


@dataclass(frozen=True, slots=True)
class AccessLimits:
    """Upper limits of the bytes that launches access."""

    cache_read: Mapping[Memory, int]
    cache_written: Mapping[Memory, int]
    parts: Mapping[Constant, Mapping[int, float]]  # the fraction that each node reads

    def part(self, constant: Constant, nodes: Collection[int]) -> float:
        """The fraction of a constant that launches of these nodes read; the largest one known if none of
        these nodes takes the constant."""
        of_nodes = self.parts.get(constant, {})
        own = [part for node, part in of_nodes.items() if node in nodes]
        return max(own or of_nodes.values(), default=1.0)


def access_limits(
    calls: Sequence[Call], planned: Planning, placement: Placement, target: Target
) -> AccessLimits:
    """The limits by the calls of the graph without rewrites; `placement` is that of the plan's caches."""
    cache_read: dict[Memory, int] = {}
    cache_written: dict[Memory, int] = {}
    parts: dict[Constant, dict[int, float]] = defaultdict(dict)
    for call in calls:
        inputs = _inputs(call)
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
    return AccessLimits(cache_read, cache_written, parts)


def _part(call: Call, inputs: Mapping[str, Value], tensor: Tensor, planned: Planning) -> float:
    """The fraction of a constant that a call reads: an embedding its rows, a slice its output, a product with
    experts at most a matrix for each choice."""
    if "pteron.experts_" in call.operator.name and isinstance(inputs["experts"], Tensor):
        return min(1.0, numel(live(inputs["experts"], planned)) / int(inputs["count"]))  # type: ignore[arg-type]
    if "embedding" in call.operator.name and tensor.shape_max:
        return min(1.0, numel(live(inputs["indices"], planned)) / tensor.shape_max[0])
    out, whole = call.outputs[0], numel(tensor.shape_max)
    if family_of_operator(call.operator.name) in COPYING and isinstance(out, Tensor) and whole:
        return min(1.0, numel(live(out, planned)) / whole)
    return 1.0


# Operations of one call ------------------------------------------------------------------------

# The call's inputs by name (tensors as their live shapes, live integers as numbers), its output's shape.
Formula: TypeAlias = Callable[[Mapping[str, Any], Shape], int]


def operations(call: Call, planned: Planning) -> int | None:
    """The number of operations of a call; None for operators without a formula."""
    formula = _formula(call.operator.name)
    if formula is None or not isinstance(call.outputs[0], Tensor):
        return None
    values = {name: live(value, planned) for name, value in _inputs(call).items()}
    return formula(values, live(call.outputs[0], planned))


def _inputs(call: Call) -> dict[str, Value]:
    """The inputs of a call by their names in the operator's signature."""
    names = (argument.name for argument in call.operator.signature.inputs)
    return dict(zip(names, call.inputs, strict=True))


def live(value: Any, planned: Planning) -> Any:
    """The live shape of a tensor, the value of a live integer, other values unchanged."""
    if isinstance(value, Tensor):
        return planned.shapes.get(value.id, value.shape_max)
    return int(planned.integers[value.id]) if isinstance(value, SymInt) else value


def _product(values: Mapping[str, Any], out: Shape) -> int:
    """A matrix product; the sum runs over the last dim of the first input."""
    x = values["mat1"] if "mat1" in values else next(iter(values.values()))
    return 2 * numel(out) * int(x[-1])


def _weight_gradient(values: Mapping[str, Any], out: Shape) -> int:
    """The sum runs over all dims of the first input except the last."""
    x = next(iter(values.values()))
    return 2 * numel(out) * numel(x[:-1])


def _convolution(values: Mapping[str, Any], out: Shape) -> int:
    """Every output sums one window; transposed, every input contributes to one window."""
    placed = values["input"] if values["transposed"] else out
    return 2 * numel(placed) * numel(values["weight"][1:])


def _quantized_convolution(values: Mapping[str, Any], out: Shape) -> int:
    window = numel(tuple(values["kernel_size"]))
    if "output_padding" in values:  # transposed
        return 2 * numel(values["x"]) * window * int(out[1]) // int(values["groups"])
    return 2 * numel(out) * window * int(values["x"][1]) // int(values["groups"])


def _cached_attention(values: Mapping[str, Any], out: Shape) -> int:
    """A query sees itself and the positions before it; with a mask, the whole context."""
    batch, steps, heads, width = values["query"]
    start = int(values["start_pos"])
    if values["is_causal"] and values["attn_mask"] is None:
        seen = steps * start + steps * (steps + 1) // 2
    else:
        seen = steps * (start + steps)
    return 4 * int(batch * heads * width * seen)


def _attention_with_options(values: Mapping[str, Any], out: Shape) -> int:
    """A query sees itself and the positions before it, as far as its window reaches."""
    batch, steps, heads, width = values["query"]
    start, window = int(values["start_pos"]), values["window"]
    ends = range(start + 1, start + int(steps) + 1)
    seen = sum(min(end, int(window)) if window else end for end in ends)
    return 2 * int(batch * heads * (width + out[-1]) * seen)


def _attention(values: Mapping[str, Any], out: Shape) -> int:
    """Scores and sums of every query (batch, heads, steps, width) over all keys."""
    return 4 * numel(values["q"]) * int(values["k"][2])


_EXACT: dict[str, Formula] = {
    "aten.mm.default": _product,
    "aten.bmm.default": _product,
    "aten.addmm.default": _product,
    "aten._weight_int8pack_mm.default": _product,
    "et_vk.linear_dW.default": _weight_gradient,
    "aten.convolution.default": _convolution,
    "et_vk.conv_with_clamp.default": _convolution,
    "sdpa_with_kv_cache.default": _cached_attention,
    "custom_sdpa.default": _cached_attention,
    "pteron.attention.default": _attention_with_options,
    "et_vk.sdpa.default": _attention,
}


def _formula(name: str) -> Formula | None:
    if name in _EXACT:
        return _EXACT[name]
    if name.startswith("et_vk.q8ta_conv2d"):
        return _quantized_convolution
    return _product if "linear" in name or "pteron.experts_" in name else None
