"""The Executable: a graph ready to run on a kind of device, as plain data.

It lists its inputs and outputs, the memory it needs (activations by size, states with their first
content, weights by content and layout) and the plans made so far. It does not
refer to the graph: written to disk and read back (plan/archive), it runs as before on any such device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

from pteron.dtypes import DType, Storage
from pteron.errors import DeviceError
from pteron.graph import Shape
from pteron.ops import Target, Weight
from pteron.ops.operand import BufferRef, Slot, State
from pteron.passes import Source, StateSpec
from pteron.plan.plan import Launch, Plan, PlanBuffer, ScratchRef
from pteron.plan.verify import storage_buffers
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

    def check_runs_on(self, device: Target) -> None:
        """Raise a DeviceError where a device lacks what the plans use, or is too small for their memory."""
        self.target.check_runs_on(device)
        sizes = [*self.slots, *(state.bytes for state in self.states.values())]
        sizes += [weight.bytes for weight in self.weights()]
        sizes += [size for plan in self.all_plans() for size in plan.scratch_bytes]
        modules = self.modules()
        buffers = max(map(storage_buffers, modules), default=0)
        invocations = max((prod(module.workgroup) for module in modules), default=0)
        is_shared = any("var<workgroup>" in module.source for module in modules)
        shared = self.target.workgroup_bytes_max if is_shared else 0
        for what, needed, allowed in (
            ("buffers of {:,} bytes", max(sizes, default=0), device.binding_bytes_max),
            ("kernels that bind {} buffers", buffers, device.buffers_max),
            ("workgroups of {} invocations", invocations, device.invocations_max),
            ("workgroups that share {:,} bytes", shared, device.workgroup_bytes_max),
        ):
            if needed > allowed:
                what = what.format(needed)
                raise DeviceError(
                    f"{self.name} was planned for a larger device, with {what}; this one allows {allowed:,}"
                )

    def _launches(self) -> Iterator[Launch]:
        for plan in self.all_plans():
            yield from plan.launches
