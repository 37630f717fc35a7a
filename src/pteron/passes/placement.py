"""Tensors -> buffers: which tensors share memory, and which buffers outlive a call.

The file assigns tensors to memory objects by the lifetimes of its own nodes. Here a tensor may live longer,
since views are free, and a WebGPU dispatch cannot read and write one buffer. So a memory object becomes one
buffer ("slot") for each of its tensors that are alive at once: nearly always one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from pteron.graph import Constant, Tensor
from pteron.graph.values import numel
from pteron.ops import Call, Kind, Target
from pteron.ops.call import mutated_ids
from pteron.ops.operand import BufferRef, Slot, State, Weight, changes_words, plain_weight
from pteron.passes.prepare import Prepared


@dataclass(frozen=True, slots=True)
class StateSpec:
    """A buffer that keeps its content between calls, and what it holds at first (None: zeros)."""

    bytes: int
    initial: Weight | None


@dataclass(frozen=True, slots=True)
class Placement:
    """Each tensor's buffer, each slot's size in bytes at the maximum shapes, each state's start."""

    buffers: dict[int, BufferRef]
    slot_bytes: tuple[int, ...]
    states: dict[int, StateSpec]
    roots: dict[int, int]  # the tensor that a view lives in, of every tensor in a slot

    def size_of(self, buffer: BufferRef) -> int:
        """A buffer's bytes at the maximum shapes."""
        if isinstance(buffer, Slot):
            return self.slot_bytes[buffer.index]
        return buffer.bytes if isinstance(buffer, Weight) else self.states[buffer.id].bytes


@dataclass(slots=True)
class _Lifetime:
    """From the call that writes a tensor to the last that reads it, views of it included."""

    tensor: Tensor
    start: float
    end: float
    bytes: int


def place(prepared: Prepared, target: Target) -> Placement:
    """Give every tensor of the graph its buffer."""
    graph, folded = prepared.graph, set(prepared.once)
    placing = _Placing(target, mutated_ids(prepared.calls))
    for value in graph.inputs:
        if isinstance(value, Tensor):
            placing.write(value, -1)
    for index, call in enumerate(prepared.calls):
        for tensor in call.reads:
            placing.read(tensor, index)
        for output in call.outputs:
            if isinstance(output, Tensor):
                placing.output(call, output, index, lasting=call in folded)
    positions = (graph.inputs[each] for source in prepared.sources for each in source.inputs)
    for value in (*graph.outputs, *positions):
        if isinstance(value, Tensor):  # positions as well: a loop on the GPU advances them between steps
            placing.read(value, math.inf)
    return placing.finish()


@dataclass(slots=True)
class _Placing:
    """Lifetimes and buffers of tensors, collected call by call."""

    target: Target
    mutated: set[int]
    buffers: dict[int, BufferRef] = field(default_factory=dict)  # of constants and states
    states: dict[int, StateSpec] = field(default_factory=dict)
    lifetimes: dict[int, _Lifetime] = field(default_factory=dict)
    root_of: dict[int, int] = field(default_factory=dict)  # a view lives in the tensor it views

    def read(self, tensor: Tensor, index: float) -> None:
        """Note a read: it extends the tensor's lifetime, or gives a constant its buffer."""
        if tensor.id in self.root_of:
            lifetime = self.lifetimes[self.root_of[tensor.id]]
            lifetime.end = max(lifetime.end, index)
        elif tensor.id not in self.buffers:
            assert tensor.constant is not None  # check_order has checked that anything else was written
            if tensor.id in self.mutated:
                self._keep(tensor, tensor.constant)
            else:
                self._upload(tensor, tensor.constant)

    def write(self, tensor: Tensor, index: float, *, lasting: bool = False) -> None:
        """Start a tensor's lifetime; `lasting` means without end, since no later call writes it again."""
        if tensor.id not in self.root_of and tensor.id not in self.buffers:
            start, end = (-math.inf, math.inf) if lasting else (index, index)
            size = numel(tensor.shape_max) * self.target.storage(tensor.dtype).itemsize
            self.root_of[tensor.id] = tensor.id
            self.lifetimes[tensor.id] = _Lifetime(tensor, start, end, size)
        elif tensor.id in self.root_of:
            lifetime = self.lifetimes[self.root_of[tensor.id]]
            lifetime.end = max(lifetime.end, index)

    def output(self, call: Call, output: Tensor, index: int, *, lasting: bool) -> None:
        """Place a call's output: an updated state, a view of its input, or a new tensor."""
        if output.constant is not None:
            self.read(output, index)
        elif call.operator.kind is Kind.PREPACK and output.id in self.mutated:
            self._keep(output, call.reads[0].constant)
        elif call.operator.kind is Kind.PREPACK and call.reads[0].id in self.mutated:
            assert call.reads[0].constant is not None  # resolve.py has checked it
            self._upload(output, call.reads[0].constant)  # its first content, even if a call changes it later
        elif call.operator.is_view and self._shares(call.reads[0], output):
            viewed = call.reads[0]
            if viewed.id in self.root_of:
                self.root_of[output.id] = self.root_of[viewed.id]
            else:
                self.buffers[output.id] = self.buffers[viewed.id]
        else:
            self.write(output, index, lasting=lasting or output.id in self.mutated)

    def finish(self) -> Placement:
        slot_of, slot_bytes = _share(self.lifetimes.values())
        slots = {id: Slot(slot_of[root]) for id, root in self.root_of.items()}
        return Placement(self.buffers | slots, slot_bytes, self.states, self.root_of)

    def _upload(self, tensor: Tensor, constant: Constant) -> None:
        self.buffers[tensor.id] = plain_weight(constant, self.target.storage(tensor.dtype))

    def _keep(self, tensor: Tensor, initial: Constant | None) -> None:
        storage = self.target.storage(tensor.dtype)
        is_given = initial is not None and len(initial.data) > 0  # Pteron's own begin as zeros
        weight = plain_weight(initial, storage) if initial and is_given else None
        self.buffers[tensor.id] = State(tensor.id)
        self.states[tensor.id] = StateSpec(numel(tensor.shape_max) * storage.itemsize, weight)

    def _shares(self, viewed: Tensor, output: Tensor) -> bool:
        """Whether a view needs no copy: neither side is written later, the element type stays, and it is not
        larger than its source."""
        root = self.root_of.get(viewed.id)
        memory = viewed if root is None else self.lifetimes[root].tensor
        fits = numel(output.shape_max) <= numel(memory.shape_max)
        unchanged = viewed.id not in self.mutated and output.id not in self.mutated
        alike = self.target.storage(viewed.dtype) is self.target.storage(output.dtype)
        return unchanged and alike and fits and not changes_words(viewed.dtype, output.dtype)


def _share(lifetimes: Iterable[_Lifetime]) -> tuple[dict[int, int], tuple[int, ...]]:
    """Within each memory object, a tensor takes the first slot that is free when it is written."""
    slot_of: dict[int, int] = {}
    sizes: list[int] = []
    free_from: list[float] = []
    slots_of_memory: dict[int, list[int]] = {}
    for lifetime in sorted(lifetimes, key=lambda lifetime: lifetime.start):
        memory = lifetime.tensor.memory
        slots = slots_of_memory.setdefault(memory, []) if memory is not None else []
        slot = next((slot for slot in slots if free_from[slot] < lifetime.start), None)
        if slot is None:
            slot = len(sizes)
            sizes.append(0)
            free_from.append(-math.inf)
            slots.append(slot)
        slot_of[lifetime.tensor.id] = slot
        sizes[slot] = max(sizes[slot], lifetime.bytes)
        free_from[slot] = lifetime.end
    return slot_of, tuple(sizes)
