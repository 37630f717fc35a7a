"""What must hold of every plan, looked at from outside: computed anew from the plan's own numbers.

check_plan      each launch fits the device, and by its kernel's statements stays inside what it binds
check_guards    where a plan says that it holds for other live integers, a new plan for them is the same plan
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from fuzz.target import Wrong
from pteron.errors import PteronError
from pteron.ops.operand import Slot, Weight
from pteron.plan import Compiled, Launch, Plan, ScratchRef, Shapes

_CODES = {"u32": "I", "i32": "i", "f32": "f"}


def check_plan(compiled: Compiled, plan: Plan, numbers: Sequence[int]) -> None:
    """Raise Wrong for the first launch that leaves its buffers or its device."""
    for launch in plan.launches:
        kernel = launch.module.kernel.name
        groups = launch.grid(numbers)
        if not all(0 <= count <= compiled.target.workgroups_max for count in groups):
            raise Wrong(f"grid of {kernel}", f"{launch}: groups {groups}")
        names: dict[str, Any] = {**launch.module.constants, "groups": groups}
        if launch.block is not None:
            names |= _parameters(launch, plan.blocks[launch.block].fill(numbers))
        starts = dict(launch.starts)
        for binding, buffer in zip(launch.module.bindings, launch.buffers, strict=True):
            extent = launch.module.statements.extents.get(binding.name)
            if extent is None:
                continue
            if isinstance(buffer, ScratchRef):
                size = plan.scratch_bytes[buffer.index]
            elif isinstance(buffer, Weight):
                size = buffer.bytes
            else:
                size = compiled.placement.size_of(buffer)
            if binding.access == "uniform" and isinstance(buffer, (Slot, ScratchRef)):
                size += compiled.target.slack  # arena memory goes on, so that arrays have few lengths
            needed = extent.value(names) * _itemsize(launch, binding.element) + starts.get(binding.name, 0)
            if needed > size:
                raise Wrong(
                    f"extent of {binding.name} in {kernel}",
                    f"{launch}: {kernel} reaches {needed} bytes of {binding.name}, of {size}, with {names}",
                )


def _parameters(launch: Launch, data: bytes) -> dict[str, Any]:
    """A launch's parameters, out of the bytes that the kernel will read."""
    found: dict[str, Any] = {}
    for field in launch.module.fields:
        values = struct.unpack_from(f"<{field.count}{_CODES[field.scalar]}", data, field.offset)
        found[field.name] = values[0] if field.count == 1 else values
    return found


def _itemsize(launch: Launch, element: str) -> int:
    """Bytes of a scalar; an alias is resolved by its module."""
    for line in launch.module.source.splitlines():
        if line.startswith((f"alias {element} ", f"alias {element}=")):
            element = line.partition("=")[2].strip(" ;")
    return 2 if element == "f16" else 4


def check_guards(
    compiled: Compiled, plan: Plan, shapes: Shapes, values: Mapping[int, int], random: Random
) -> None:
    """Raise Wrong where a plan would be used for live integers that it is not right for."""
    for _ in range(3 if values else 0):
        other = {symbol: _near(value, random) for symbol, value in values.items()}
        numbers = plan.numbers(other)
        if numbers is None:
            continue
        try:
            fresh = compiled.plan(shapes, other)
        except PteronError as error:
            raise Wrong(
                "guards", f"a plan for {dict(values)} is kept for {other}, where planning says {error}"
            ) from error
        check_plan(compiled, plan, numbers)
        fresh_numbers = fresh.numbers(other)
        if fresh_numbers is None:
            raise Wrong("own guards", f"a plan made for {other} is not right for them")
        if _described(plan, numbers) != _described(fresh, fresh_numbers):
            raise Wrong("guards", f"a plan for {dict(values)} is kept for {other}, where another one is made")


def _near(value: int, random: Random) -> int:
    return random.choice(
        (value, value + 1, value - 1, value + random.randrange(64), 2 * value, random.randrange(-4, 300))
    )


def _described(plan: Plan, numbers: Sequence[int]) -> list[object]:
    launches = [
        (
            launch.module.source,
            launch.grid(numbers),
            launch.buffers,
            launch.starts,
            None if launch.block is None else plan.blocks[launch.block].fill(numbers),
        )
        for launch in plan.launches
    ]
    integers = {id: value.evaluate(numbers) for id, value in plan.integers.items()}
    return [launches, dict(plan.shapes), integers, plan.scratch_bytes]
