"""The Executable: a graph ready to run on a kind of device, as plain data.

It lists its inputs and outputs, the memory it needs (activations by size, states with their first
content, weights by content and layout) and plans, if it is for another host. It does not refer to the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from pteron.dtypes import DType, Storage
from pteron.graph import Shape
from pteron.ops import Target, Weight
from pteron.ops.operand import BufferRef, Slot, State
from pteron.passes import Source, StateSpec
from pteron.plan.plan import Launch, Plan, PlanBuffer, ScratchRef
from pteron.wgsl import Module

Shapes: TypeAlias = tuple[Shape | None, ...]  # per input; None for a live integer


@dataclass(frozen=True, slots=True)
class TensorPort:
    """An input or output tensor: its type, its maximum shape, its buffer."""

    id: int
    dtype: DType
    shape_max: Shape
    storage: Storage
    buffer: BufferRef

    def __str__(self) -> str:
        return f"%{self.id}:{self.dtype}{list(self.shape_max)}"


@dataclass(frozen=True, slots=True)
class SymbolPort:
    id: int

    def __str__(self) -> str:
        return f"%{self.id}:SymInt"


Port: TypeAlias = TensorPort | SymbolPort


@dataclass(frozen=True, slots=True)
class Executable:
    """What a device needs to know of a graph."""

    name: str
    target: Target
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    sources: tuple[Source, ...]  # where the live integers come from
    slots: tuple[int, ...]  # bytes of each buffer, which several tensors may share
    states: Mapping[int, StateSpec]  # by value id
    once: Plan  # run before anything else: what depends on constants alone
    plans: dict[Shapes, list[Plan]] = field(default_factory=dict)

    def all_plans(self) -> Iterator[Plan]:
        yield self.once
        for plans in self.plans.values():
            yield from plans

    def modules(self) -> tuple[Module, ...]:
        """The kernels of all plans, each once."""
        return tuple({launch.module.source: launch.module for launch in self._launches()}.values())

    def weights(self, *, with_initial: bool = True) -> tuple[Weight, ...]:
        """The weights of all plans and, `with_initial`, the states' first contents, each once."""
        bound = [buffer for launch in self._launches() for buffer in launch.buffers]
        first = [state.initial for state in self.states.values() if with_initial]
        placed = [port.buffer for port in self.outputs if isinstance(port, TensorPort)]
        return tuple(dict.fromkeys(item for item in (*bound, *first, *placed) if isinstance(item, Weight)))

    def number_buffers(self, weights: Iterable[Weight]) -> dict[PlanBuffer, int]:
        """The numbers of all buffers in a file: slots, states, these weights, scratch memory."""
        slots = [Slot(index) for index in range(len(self.slots))]
        states = [State(id) for id in self.states]
        scratch = max((len(plan.scratch_bytes) for plan in self.all_plans()), default=0)
        buffers: list[PlanBuffer] = [*slots, *states, *weights, *map(ScratchRef, range(scratch))]
        return {buffer: number for number, buffer in enumerate(buffers)}

    def _launches(self) -> Iterator[Launch]:
        for plan in self.all_plans():
            yield from plan.launches
