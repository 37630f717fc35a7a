"""The Plan: everything needed to run a graph at one set of live shapes, as plain data."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from pteron.graph import Node, Shape
from pteron.ops.live import Affine, Guard
from pteron.ops.operand import BufferRef
from pteron.wgsl import Module


@dataclass(frozen=True, slots=True)
class ScratchRef:
    """A buffer that nodes use one after the other, by its place among a node's scratch buffers."""

    index: int


PlanBuffer: TypeAlias = BufferRef | ScratchRef


@dataclass(frozen=True, slots=True)
class ParameterBlock:
    """A kernel's Params: its bytes, and which 32-bit words follow live integers."""

    data: bytes
    live: tuple[tuple[int, Affine], ...] = ()  # (byte offset, value)

    def fill(self, values: Mapping[int, int]) -> bytes:
        """The bytes at these values of the live integers."""
        filled = bytearray(self.data)
        for offset, expression in self.live:
            struct.pack_into("<i", filled, offset, expression.evaluate(values))
        return bytes(filled)


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """One dispatch with everything decided: the kernel's text, its buffers, its grid."""

    node: Node
    module: Module
    buffers: tuple[PlanBuffer, ...]  # in the order of module.bindings
    block: int | None  # which ParameterBlock
    groups: tuple[int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Launches in order, and the conditions under which they are right.

    Blocks that follow live integers come first, so that one write refreshes them all.
    """

    launches: tuple[Launch, ...]
    blocks: tuple[ParameterBlock, ...]
    scratch_bytes: tuple[int, ...]
    shapes: Mapping[int, Shape]  # by tensor id
    integers: Mapping[int, Affine]  # by SymInt id
    guards: tuple[Guard, ...]

    @property
    def live_blocks(self) -> int:
        """How many of the first blocks hold live integers."""
        return sum(1 for block in self.blocks if block.live)

    def holds(self, values: Mapping[int, int]) -> bool:
        """Whether the plan is right for these values of the live integers."""
        return all(guard.holds(values) for guard in self.guards)

    def __str__(self) -> str:
        return "\n".join(
            f"{launch.node.index:4} {launch.node.name:40} {launch.module.kernel.name:20} {launch.groups}"
            for launch in self.launches
        )
