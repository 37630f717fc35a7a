"""A plan -> the bytes in use at each of its launches.

A slot is in use from the launch that writes a tensor to the last launch that binds it before the next tensor
uses the slot. Inputs are in use from the start, outputs until the end, results of constants always.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from pteron.graph import Tensor
from pteron.graph.values import numel
from pteron.ops import Call
from pteron.ops.operand import Slot, Weight
from pteron.plan import Compiled, Launch, Plan, ScratchRef, TensorPort
from pteron.tools.inspect.page.report import MemoryDetails


def memory_of(compiled: Compiled, plan: Plan, shapes: dict[int, tuple[int, ...]]) -> MemoryDetails:
    """The memory of a plan whose tensors have these shapes."""
    executable, launches = compiled.executable, plan.launches
    changes = [0] * (len(launches) + 1)
    for first, end, size in _occupied(compiled, launches, shapes):
        changes[first] += size
        changes[end] -= size
    activations = list(accumulate(changes[:-1]))
    scratch = [
        sum(plan.scratch_bytes[used.index] for used in {*each.buffers} if isinstance(used, ScratchRef))
        for each in launches
    ]
    bound = (buffer for each in (*executable.once.launches, *launches) for buffer in each.buffers)
    placed = (port.buffer for port in executable.outputs if isinstance(port, TensorPort))
    weights = sum(weight.bytes for weight in {b for b in (*bound, *placed) if isinstance(b, Weight)})
    states = sum(state.bytes for state in executable.states.values())
    in_use = [a + s for a, s in zip(activations, scratch, strict=True)]
    peak = max(range(len(in_use)), key=in_use.__getitem__, default=None)
    return MemoryDetails(
        weights=weights,
        states=states,
        activations_reserved=sum(executable.slots),
        scratch_reserved=sum(plan.scratch_bytes),
        activations=tuple(activations),
        scratch=tuple(scratch),
        peak_launch=peak,
        peak_bytes=weights + states + (in_use[peak] if peak is not None else 0),
    )


def _occupied(
    compiled: Compiled, launches: Sequence[Launch], shapes: dict[int, tuple[int, ...]]
) -> Iterator[tuple[int, int, int]]:
    """Launches [first, end) and the bytes of the tensor that occupies a slot during these."""
    # Outputs are read after the last launch.
    outputs = {port.buffer for port in compiled.executable.outputs if isinstance(port, TensorPort)}
    binding: dict[Slot, list[int]] = {}
    for position, each in enumerate(launches):
        for buffer in each.buffers:
            if isinstance(buffer, Slot):
                binding.setdefault(buffer, []).append(position)
    for slot, tensors in _tenants(compiled, launches).items():
        for index, (first, tensor, is_lasting) in enumerate(tensors):
            until = tensors[index + 1][0] if index + 1 < len(tensors) else len(launches)
            used = [position for position in binding.get(slot, ()) if first <= position < until]
            is_output = slot in outputs and index + 1 == len(tensors)
            if is_lasting or is_output:
                end = len(launches)
            elif used:
                end = used[-1] + 1
            else:
                continue  # fused into another launch
            shape = shapes.get(tensor.id, tensor.shape_max)
            start = 0 if is_lasting else first
            yield start, end, numel(shape) * compiled.target.storage(tensor.dtype).itemsize


def _tenants(compiled: Compiled, launches: Sequence[Launch]) -> dict[Slot, list[tuple[int, Tensor, bool]]]:
    """The successive tensors of each slot: the first launch, the tensor, whether it depends only on
    constants."""
    prepared, placement = compiled.prepared, compiled.placement
    launches_of: dict[int, list[int]] = {}
    for position, each in enumerate(launches):
        for node in each.nodes:
            launches_of.setdefault(node, []).append(position)
    tenants: dict[Slot, list[tuple[int, Tensor, bool]]] = {}

    def enter(tensor: Tensor, first: int, is_lasting: bool) -> None:
        buffer = placement.buffers.get(tensor.id)
        if isinstance(buffer, Slot) and placement.roots.get(tensor.id) == tensor.id:
            tenants.setdefault(buffer, []).append((first, tensor, is_lasting))

    def starts(call: Call) -> int | None:
        """The first launch that does all work of a call."""
        own = (at for at in launches_of.get(call.node.index, ()) if {*call.nodes} <= {*launches[at].nodes})
        return next(own, None)

    for value in prepared.graph.inputs:
        if isinstance(value, Tensor):
            enter(value, 0, False)
    for calls, is_lasting in ((prepared.once, True), (prepared.each, False)):
        for call in calls:
            first = 0 if is_lasting else starts(call)
            for output in call.outputs:
                if first is not None and isinstance(output, Tensor):
                    enter(output, first, is_lasting)
    return tenants
