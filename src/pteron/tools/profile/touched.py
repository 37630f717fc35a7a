"""How much operators touch of what their launches bind: positions of caches, rows of tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pteron.graph import Constant, Tensor, Value
from pteron.graph.values import numel
from pteron.ops import Call, Scratch, Target, Weight
from pteron.ops.operand import BufferRef, State
from pteron.passes import Placement
from pteron.plan.planner import Planning
from pteron.tools.profile.families import family_of_operator
from pteron.tools.profile.operations import live

Memory: TypeAlias = BufferRef | Scratch
COPYING = ("layout", "index")  # families that read no more of a tensor than they write


@dataclass(frozen=True, slots=True)
class Limits:
    """What no launch exceeds."""

    cache_read: Mapping[Memory, int]
    cache_written: Mapping[Memory, int]
    parts: Mapping[Constant, Mapping[int, float]]  # the part of it that each node reads

    def part(self, constant: Constant, nodes: Collection[int]) -> float:
        """Which part of a constant is read by launches of these nodes. Where none of them takes it, they read
        what others pick of it."""
        of_nodes = self.parts.get(constant, {})
        own = [part for node, part in of_nodes.items() if node in nodes]
        return max(own or of_nodes.values(), default=1.0)


def limits_of(calls: Sequence[Call], planned: Planning, placement: Placement, target: Target) -> Limits:
    """By the calls of a graph as the file has it; `placement` says where the plan has its caches."""
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
    return Limits(cache_read, cache_written, parts)


def _part(call: Call, inputs: Mapping[str, Value], tensor: Tensor, planned: Planning) -> float:
    """Which part of a constant a call reads: embeddings pick rows, slices and the like what they give."""
    if "embedding" in call.operator.name and tensor.shape_max:
        return min(1.0, numel(live(inputs["indices"], planned)) / tensor.shape_max[0])
    out, whole = call.outputs[0], numel(tensor.shape_max)
    if family_of_operator(call.operator.name) in COPYING and isinstance(out, Tensor) and whole:
        return min(1.0, numel(live(out, planned)) / whole)
    return 1.0
