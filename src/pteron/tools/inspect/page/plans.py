"""A compiled graph and live shapes -> a plan for the page."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from pteron.errors import PteronError
from pteron.graph import Constant, SymInt, Tensor
from pteron.ops.operand import Slot, State, Weight
from pteron.plan import Compiled, Launch, Plan, PlanBuffer, ScratchRef, Shapes
from pteron.tools.inspect.page.memory import memory_of
from pteron.tools.inspect.page.report import BindingDetails, KernelDetails, LaunchDetails, PlanDetails
from pteron.wgsl import Module

_SOURCES_MAX = 1 << 20  # characters of kernel source per page
_FORMATS = {"u32": "I", "i32": "i", "f32": "f"}


class KernelTable:
    """Numbers kernels in the order of their first use; omits sources beyond a megabyte."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._modules: list[Module] = []

    def __getitem__(self, module: Module) -> int:
        place = self._places.setdefault(module.source, len(self._places))
        if place == len(self._modules):
            self._modules.append(module)
        return place

    def entries(self) -> tuple[KernelDetails, ...]:
        found, left = [], _SOURCES_MAX
        for module in self._modules:
            left -= len(module.source)
            source = module.source if left >= 0 else None
            found.append(KernelDetails(module.kernel.name, module.workgroup, source))
        return tuple(found)


def describe_plan(
    title: str,
    graphs: tuple[Compiled, Compiled],
    shapes: Shapes,
    integers: int,
    constants: Sequence[Constant],
    kernels: KernelTable,
    notes: Sequence[str] = (),
) -> PlanDetails:
    """The plan for these input shapes, with all live integers set to `integers`; `graphs` are the graph to
    plan, and the same without rewrites, which has more tensors."""
    compiled, unrewritten = graphs
    graph = compiled.prepared.graph
    values = {source.symbol: integers for source in compiled.executable.sources}
    inputs = tuple(
        f"{value.dtype}{list(shape)}" if isinstance(value, Tensor) and shape is not None else str(integers)
        for value, shape in zip(graph.inputs, shapes, strict=True)
    )
    try:
        plan = compiled.plan(shapes, values)
        live = {**unrewritten.shapes(shapes, values), **compiled.shapes(shapes, values)}
    except PteronError as error:
        return PlanDetails(title, inputs, {}, (), None, tuple(notes), str(error))
    named = zip(graph.inputs, shapes, strict=True)
    live |= {value.id: shape for value, shape in named if shape is not None}
    most = _shapes_max(unrewritten) | _shapes_max(compiled)
    places = {constant: index for index, constant in enumerate(constants)}
    numbers = plan.numbers(values) or []
    return PlanDetails(
        title=title,
        inputs=inputs,
        shapes={id: shape for id, shape in live.items() if most.get(id) != shape},
        launches=tuple(_launch(each, plan, compiled, numbers, places, kernels) for each in plan.launches),
        memory=memory_of(compiled, plan, live),
        notes=tuple(notes),
    )


def _shapes_max(compiled: Compiled) -> dict[int, tuple[int, ...]]:
    calls = compiled.prepared.calls
    tensors = (tensor for call in calls for tensor in (*call.reads, *call.writes))
    border = (value for value in compiled.prepared.graph.inputs if not isinstance(value, SymInt))
    return {tensor.id: tensor.shape_max for tensor in (*border, *tensors)}


def _launch(
    launch: Launch,
    plan: Plan,
    compiled: Compiled,
    numbers: Sequence[int],
    places: Mapping[Constant, int],
    kernels: KernelTable,
) -> LaunchDetails:
    buffers = tuple(
        BindingDetails(binding.name, binding.access, *_place(buffer, plan, compiled, places))
        for binding, buffer in zip(launch.module.bindings, launch.buffers, strict=True)
    )
    return LaunchDetails(
        node=launch.node,
        nodes=launch.nodes,
        operator=launch.operator,
        kernel=kernels[launch.module],
        groups=launch.groups,
        buffers=buffers,
        parameters=_parameters(launch, plan, numbers),
    )


def _place(
    buffer: PlanBuffer, plan: Plan, compiled: Compiled, places: Mapping[Constant, int]
) -> tuple[str, int, int]:
    """A buffer's kind, its index within the kind, and its bytes."""
    match buffer:
        case Slot(index):
            return "slot", index, compiled.executable.slots[index]
        case State(id):
            return "state", id, compiled.executable.states[id].bytes
        case ScratchRef(index):
            return "scratch", index, plan.scratch_bytes[index]
        case Weight():
            return "weight", places.get(buffer.constant, -1), buffer.bytes


def _parameters(launch: Launch, plan: Plan, numbers: Sequence[int]) -> dict[str, Any]:
    """The kernel's parameters by name, with the live values of this plan."""
    if launch.block is None:
        return {}
    data = plan.blocks[launch.block].fill(numbers)
    found: dict[str, Any] = {}
    for field in launch.module.fields:
        words = struct.unpack_from(f"<{field.count}{_FORMATS[field.scalar]}", data, field.offset)
        plain = [word if math.isfinite(word) else str(word) for word in words]
        found[field.name] = plain[0] if len(plain) == 1 else plain
    return found
