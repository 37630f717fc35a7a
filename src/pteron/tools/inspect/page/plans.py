"""A compiled graph and live shapes -> a plan for the page, with the bytes in use at each launch.

A slot is in use from the launch that writes a tensor to the last launch that binds it before the next tensor
uses the slot. Inputs are in use from the start, outputs until the end, results of constants always.
"""

from __future__ import annotations

import math
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from pteron.errors import PteronError
from pteron.graph import Constant, Shape, SymInt, Tensor
from pteron.graph.values import numel
from pteron.ops import Call
from pteron.ops.operand import Slot, State, Weight
from pteron.plan import Compiled, Launch, Plan, PlanBuffer, ScratchRef, TensorPort
from pteron.tools.inspect.figures import figures_of
from pteron.tools.inspect.page.details import (
    BindingDetails,
    KernelDetails,
    LaunchDetails,
    MemoryDetails,
    PlanDetails,
)
from pteron.tools.inspect.plans import DelegatePlan
from pteron.wgsl import Module

_SOURCES_MAX = 1 << 20  # characters of kernel source per page
_FORMATS = {"u32": "I", "i32": "i", "f32": "f"}


class KernelTable:
    """Numbers kernels in the order of their first use; omits sources beyond a megabyte, those of the kernel
    `kept` excepted."""

    def __init__(self, kept: str | None = None) -> None:
        self._kept = kept
        self._found: dict[str, tuple[int, Module]] = {}  # by source

    def __getitem__(self, module: Module) -> int:
        return self._found.setdefault(module.source, (len(self._found), module))[0]

    def entries(self) -> tuple[KernelDetails, ...]:
        entries, left = [], _SOURCES_MAX
        for source, (_, module) in self._found.items():
            name = module.kernel.name
            left -= len(source)
            is_kept = left >= 0 or name == self._kept
            entries.append(KernelDetails(name, module.workgroup, source if is_kept else None))
        return tuple(entries)


def describe_plan(
    title: str,
    planned: DelegatePlan,
    unrewritten: Compiled,
    integers: int,
    constants: Sequence[Constant],
    kernels: KernelTable,
) -> PlanDetails:
    """A plan in which all live integers are `integers`; the graph without rewrites has more tensors."""
    compiled, values = planned.compiled, planned.values
    given = list(zip(compiled.prepared.graph.inputs, planned.shapes, strict=True))
    inputs = tuple(
        f"{value.dtype}{list(shape)}" if isinstance(value, Tensor) and shape is not None else str(integers)
        for value, shape in given
    )
    try:
        plan = planned.plan
        live = {each.id: shape for each, shape in given if shape is not None}
        live = {
            **unrewritten.shapes(planned.shapes, values),
            **compiled.shapes(planned.shapes, values),
            **live,
        }
    except PteronError as error:
        return PlanDetails(title, inputs, {}, (), None, planned.notes, str(error))
    most = _shapes_max(unrewritten) | _shapes_max(compiled)
    places = {constant: index for index, constant in enumerate(constants)}
    numbers = plan.numbers(values) or []
    launches = tuple(
        LaunchDetails(
            node=launch.node,
            nodes=launch.nodes,
            operator=launch.operator,
            kernel=kernels[launch.module],
            groups=launch.grid(),
            buffers=tuple(
                BindingDetails(binding.name, binding.access, *_place(buffer, plan, compiled, places))
                for binding, buffer in zip(launch.module.bindings, launch.buffers, strict=True)
            ),
            parameters=_parameters(launch, plan, numbers),
        )
        for launch in plan.launches
    )
    changed = {id: shape for id, shape in live.items() if most.get(id) != shape}
    return PlanDetails(title, inputs, changed, launches, _memory(compiled, plan, live), planned.notes)


def _shapes_max(compiled: Compiled) -> dict[int, Shape]:
    calls = compiled.prepared.calls
    tensors = (tensor for call in calls for tensor in (*call.reads, *call.writes))
    border = (value for value in compiled.prepared.graph.inputs if not isinstance(value, SymInt))
    return {tensor.id: tensor.shape_max for tensor in (*border, *tensors)}


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


# Memory -----------------------------------------------------------------------------------------


def _memory(compiled: Compiled, plan: Plan, shapes: Mapping[int, Shape]) -> MemoryDetails:
    launches, figures = plan.launches, figures_of(compiled, plan)
    changes = [0] * (len(launches) + 1)
    for first, end, size in _occupied(compiled, launches, shapes):
        changes[first] += size
        changes[end] -= size
    activations = list(accumulate(changes[:-1]))
    scratch = [
        sum(plan.scratch_bytes[used.index] for used in {*each.buffers} if isinstance(used, ScratchRef))
        for each in launches
    ]
    in_use = [a + s for a, s in zip(activations, scratch, strict=True)]
    peak = max(range(len(in_use)), key=in_use.__getitem__, default=None)
    return MemoryDetails(
        weights=figures.weights,
        states=figures.states,
        activations_reserved=figures.activations,
        scratch_reserved=figures.scratch,
        activations=tuple(activations),
        scratch=tuple(scratch),
        peak_launch=peak,
        peak_bytes=figures.weights + figures.states + (in_use[peak] if peak is not None else 0),
    )


def _occupied(
    compiled: Compiled, launches: Sequence[Launch], shapes: Mapping[int, Shape]
) -> Iterator[tuple[int, int, int]]:
    """Launches [first, end) and the bytes of the tensor that occupies a slot during these."""
    # Outputs are read after the last launch.
    outputs = {port.buffer for port in compiled.executable.outputs if isinstance(port, TensorPort)}
    binding: dict[Slot, list[int]] = defaultdict(list)
    for position, each in enumerate(launches):
        for buffer in each.buffers:
            if isinstance(buffer, Slot):
                binding[buffer].append(position)
    for slot, tensors in _tenants(compiled, launches).items():
        for index, (first, tensor, is_lasting) in enumerate(tensors):
            until = tensors[index + 1][0] if index + 1 < len(tensors) else len(launches)
            used = [position for position in binding[slot] if first <= position < until]
            is_output = slot in outputs and index + 1 == len(tensors)
            if not (used or is_lasting or is_output):
                continue  # fused into another launch
            end = len(launches) if is_lasting or is_output else used[-1] + 1
            size = numel(shapes.get(tensor.id, tensor.shape_max))
            yield 0 if is_lasting else first, end, size * compiled.target.storage(tensor.dtype).itemsize


def _tenants(compiled: Compiled, launches: Sequence[Launch]) -> dict[Slot, list[tuple[int, Tensor, bool]]]:
    """The successive tensors of each slot: the first launch, the tensor, whether it depends only on
    constants."""
    prepared, placement = compiled.prepared, compiled.placement
    launches_of: dict[int, list[int]] = defaultdict(list)
    for position, each in enumerate(launches):
        for node in each.nodes:
            launches_of[node].append(position)
    tenants: dict[Slot, list[tuple[int, Tensor, bool]]] = defaultdict(list)

    def enter(tensor: object, first: int, is_lasting: bool) -> None:
        if isinstance(tensor, Tensor) and placement.roots.get(tensor.id) == tensor.id:
            buffer = placement.buffers.get(tensor.id)
            if isinstance(buffer, Slot):
                tenants[buffer].append((first, tensor, is_lasting))

    def starts(call: Call) -> int | None:
        """The first launch that does all work of a call."""
        own = (at for at in launches_of[call.node.index] if {*call.nodes} <= {*launches[at].nodes})
        return next(own, None)

    for value in prepared.graph.inputs:
        enter(value, 0, False)
    for calls, is_lasting in ((prepared.once, True), (prepared.each, False)):
        for call in calls:
            first = 0 if is_lasting else starts(call)
            for output in call.outputs if first is not None else ():
                enter(output, first or 0, is_lasting)
    return tenants
