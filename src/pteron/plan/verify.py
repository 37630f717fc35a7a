"""Every launch is checked before it becomes part of a plan: what it binds against the memory behind it, what
its kernel states of itself against what is bound and what the device does.

Where a live integer decides, the check leaves a guard on the plan: it holds for values that pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pteron.ops import Dispatch, Operand, RequirementError, Scratch, Target, Weight
from pteron.ops.dispatch import Bound
from pteron.ops.operand import BufferRef
from pteron.wgsl import Module

SizeOf = Callable[[BufferRef], int]  # bytes of the buffer behind a reference


def verify(
    dispatch: Dispatch, module: Module, groups: tuple[int, int, int], target: Target, size_of: SizeOf
) -> None:
    """Raise a RequirementError unless the launch stays within its buffers and the device's limits."""
    for binding in module.bindings:
        bound = dispatch.bindings[binding.name]
        needed, there = _bytes(bound), _bytes_behind(bound, size_of)
        if needed > there:
            raise RequirementError(f"{_described(bound)} takes {needed:,} bytes, its memory has {there:,}")
    if module.bounds_checks and not target.loop_max:
        return
    names: dict[str, Any] = {**module.constants, **dispatch.parameters, "groups": groups}
    if not module.bounds_checks:
        for binding in module.bindings:
            bound = dispatch.bindings[binding.name]
            extent, there = module.statements.extents[binding.name].value(names), _elements(bound)
            if extent > there:
                raise RequirementError(
                    f"kernel {module.kernel.name} reaches {extent} elements of {binding.name}, "
                    f"{_described(bound)} has {there}"
                )
    if target.loop_max and module.statements.loops is not None:
        loops = module.statements.loops.value(names)
        if loops > target.loop_max:
            raise RequirementError(
                f"kernel {module.kernel.name} needs {loops} iterations, the adapter ends loops after "
                f"{target.loop_max}"
            )


def _elements(bound: Bound) -> int:
    if isinstance(bound, Operand):
        return bound.numel
    return bound.count


def _bytes(bound: Bound) -> int:
    if isinstance(bound, Weight):
        return bound.bytes
    return _elements(bound) * bound.storage.itemsize


def _bytes_behind(bound: Bound, size_of: SizeOf) -> int:
    buffer = bound.buffer if isinstance(bound, Operand) else bound
    if isinstance(buffer, Weight):
        return buffer.bytes
    return _bytes(buffer) if isinstance(buffer, Scratch) else size_of(buffer)


def _described(bound: Bound) -> str:
    if isinstance(bound, Operand):
        return str(bound)
    return f"a weight in the layout {bound.layout!r}" if isinstance(bound, Weight) else "scratch memory"
