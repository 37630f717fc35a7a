"""Makes kernels without bounds checks safe. Tensors fit into their memory: checked once per graph. Kernels
stay within the tensors: checked for every launch, by the extents that kernels state.

A check that depends on a live integer adds a guard: the plan is used only for values that pass it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pteron.errors import GraphError
from pteron.graph.values import numel
from pteron.ops import (
    AnyInt,
    Call,
    Dispatch,
    Operand,
    OperandSlice,
    RequirementError,
    Scratch,
    Target,
    Weight,
    most,
)
from pteron.ops.dispatch import Bound, elements
from pteron.passes import Placement
from pteron.wgsl import Binding, Module


def verify(dispatch: Dispatch, module: Module, groups: tuple[AnyInt, AnyInt, AnyInt], target: Target) -> None:
    """Raise a RequirementError unless a kernel stays within its bindings and the device's loop limit."""
    reach = module.statements.reach
    loops = module.statements.loops if target.loop_max else None
    if reach is None and loops is None:
        return
    names: dict[str, Any] = {**dispatch.parameters, "groups": groups}
    if reach is not None:
        for binding, extent in zip(module.bindings, reach.value(names), strict=True):
            bound = dispatch.bindings[binding.name]
            count = room(binding, bound, target)
            if extent > count:
                raise RequirementError(
                    f"kernel {module.kernel.name} reaches {extent} elements of {binding.name}, "
                    f"{_described(bound)} has {count}"
                )
    if loops is not None:
        count = loops.value(names)
        if count > target.loop_max:
            raise RequirementError(
                f"kernel {module.kernel.name} needs {count} iterations, the adapter ends loops after "
                f"{target.loop_max}"
            )


def room(binding: Binding, bound: Bound, target: Target) -> AnyInt:
    """The scalars that a kernel may touch. A uniform array may end past its tensor, in the slack of arena
    memory."""
    if binding.access != "uniform":
        return elements(bound)
    operand, start = (bound.of, bound.start) if isinstance(bound, OperandSlice) else (bound, 0)
    if isinstance(operand, Scratch) or (isinstance(operand, Operand) and operand.has_slack):
        size, whole = bound.storage.itemsize, elements(operand)
        fits_always = most(start) + binding.bytes <= most(whole) * size + target.slack
        if fits_always or start + binding.bytes <= whole * size + target.slack:
            return binding.bytes // size
    return elements(bound)


def check_storage(kernel: str, binding: Binding, bound: Bound) -> None:
    """Raise a RequirementError if a kernel reads elements as another type than theirs; the sign of integers
    does not matter."""
    storage = str(bound.storage)
    if storage != binding.element and not {storage, binding.element} <= {"i32", "u32"}:
        raise RequirementError(
            f"kernel {kernel} takes {binding.name} as {binding.element}, "
            f"{_described(bound)} is stored as {bound.storage}"
        )


def check_bindings(module: Module, target: Target) -> None:
    """Raise a RequirementError if a kernel binds more storage buffers than the device allows."""
    count = storage_buffers(module)
    if count > target.buffers_max:
        raise RequirementError(
            f"kernel {module.kernel.name} binds {count} buffers, the adapter allows {target.buffers_max}"
        )


def storage_buffers(module: Module) -> int:
    """The number of storage buffers of a kernel. Uniform arrays do not count: every device allows
    UNIFORMS_MAX."""
    return sum(binding.access != "uniform" for binding in module.bindings)


def check_memory(where: str, calls: Iterable[Call], placement: Placement, target: Target) -> None:
    """Raise a GraphError unless every tensor fits into its memory at its maximum shape.

    Live shapes never exceed the maximum, so what holds here holds for every plan.
    """
    for call in calls:
        for tensor in (*call.reads, *call.writes):
            needed = numel(tensor.shape_max) * target.storage(tensor.dtype).itemsize
            size = placement.size_of(placement.buffers[tensor.id])
            if needed > size:
                raise GraphError(
                    f"{where}, {call.node}: {tensor} takes {needed:,} bytes, its memory has {size:,}"
                )


def _described(bound: Bound) -> str:
    if isinstance(bound, OperandSlice):
        return f"{bound.of} from element {bound.first} on"
    if isinstance(bound, Operand):
        return str(bound)
    return f"a weight in the layout {bound.layout!r}" if isinstance(bound, Weight) else "scratch memory"
