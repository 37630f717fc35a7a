"""The Plan: everything needed to run a graph at the live shapes that its guards allow, as plain data."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from pteron.graph import Shape
from pteron.ops.operand import BufferRef
from pteron.ops.terms import WIDTH_MAX, Affine, Guard, Symbol, Tape, evaluate, number_of
from pteron.wgsl import Module


@dataclass(frozen=True, slots=True)
class ScratchRef:
    """A scratch buffer that all nodes share, by its index among a node's scratch buffers."""

    index: int


PlanBuffer: TypeAlias = BufferRef | ScratchRef


@dataclass(frozen=True, slots=True)
class ParameterBlock:
    """A kernel's Params: its bytes, and which 32-bit words follow live dims and integers."""

    data: bytes
    live: tuple[tuple[int, Affine], ...] = ()  # (byte offset, value)

    def fill(self, numbers: Sequence[int]) -> bytes:
        """The bytes where the plan's live terms have these numbers."""
        filled = bytearray(self.data)
        for offset, expression in self.live:
            number = expression.evaluate(numbers) & 0xFFFFFFFF  # the plan's guards keep it in range
            struct.pack_into("<I", filled, offset, number)
        return bytes(filled)


class Launch(NamedTuple):
    """One dispatch with everything decided: the kernel's text, its buffers, its grid. A tuple, because a plan
    has many: a frozen dataclass takes three times as long to make."""

    node: int  # of the graph, by index
    operator: str  # of that node
    module: Module
    buffers: tuple[PlanBuffer, ...]  # in the order of module.bindings
    block: int | None  # which ParameterBlock
    groups: tuple[int | Affine, int | Affine, int | Affine]  # expressions of live dims
    starts: tuple[
        tuple[str, int | Affine], ...
    ] = ()  # (binding, byte offset) of those that do not begin at 0
    nodes: tuple[int, ...] = ()  # all nodes whose work it does: rewrites and joins merge several

    @property
    def moves(self) -> bool:
        """Whether it binds buffers from places that follow live dims."""
        return any(isinstance(start, Affine) for _, start in self.starts)

    def grid(self, numbers: Sequence[int] = ()) -> tuple[int, int, int]:
        """Its workgroups, where the plan's live terms have these numbers."""
        x, y, z = (each.evaluate(numbers) if isinstance(each, Affine) else each for each in self.groups)
        return x, y, z

    def __str__(self) -> str:
        return f"node {self.node} {self.operator}"


@dataclass(frozen=True, slots=True)
class IndexRange:
    """The valid range of an input's indices: an index outside is an error if the host sees it."""

    input: int
    low: int
    high: int
    operator: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Launches in order, and the conditions under which they are correct.

    Blocks that follow live integers come first, so that one write refreshes them all.
    """

    launches: tuple[Launch, ...]
    blocks: tuple[ParameterBlock, ...]
    scratch_bytes: tuple[int, ...]
    shapes: Mapping[int, tuple[int | Affine, ...]]  # of the outputs, by tensor id
    integers: Mapping[int, Affine]  # among the outputs, by SymInt id
    tape: Tape
    guards: tuple[Guard, ...]
    indices: tuple[IndexRange, ...] = ()
    # The intervals of single live integers and dims, which are checked first.
    limits: tuple[tuple[int, float, float], ...] = field(init=False, compare=False, default=())
    # Terms that may change while all dims stay, and the guards on them.
    moving: tuple[tuple[int, ...], tuple[Guard, ...]] = field(init=False, compare=False, default=((), ()))

    def __post_init__(self) -> None:
        single = [guard for guard in self.guards if len(guard.expression.terms) == 1]
        found = [(self.tape[guard.expression.terms[0][0]], guard.low, guard.high) for guard in single]
        limits = tuple((term.id, low, high) for term, low, high in found if isinstance(term, Symbol))
        object.__setattr__(self, "limits", limits)
        moving: set[int] = set()
        for index, term in enumerate(self.tape):
            parts = () if isinstance(term, Symbol) else (*term.left.terms, *term.right.terms)
            if any(part in moving for part, _ in parts) or (isinstance(term, Symbol) and not term.is_dim):
                moving.add(index)
        checked = [
            guard for guard in self.guards if any(term in moving for term, _ in guard.expression.terms)
        ]
        object.__setattr__(self, "moving", (tuple(sorted(moving)), tuple(checked)))

    def asks(self, id: int) -> bool:
        """Whether it depends on a live integer or dim. A plan for one shape asks for none of its dims."""
        return any(isinstance(term, Symbol) and term.id == id for term in self.tape)

    def reach(self, values: Mapping[int, int], ids: Sequence[int], end: int) -> int:
        """How far towards `end` these live integers or dims, which are equal in `values`, can go together
        while the plan holds; to the end if there are none."""
        if not ids:
            return end
        holds, fails = values[ids[0]], end
        if self.numbers({**values, **dict.fromkeys(ids, end)}) is not None:
            return end
        while abs(fails - holds) > 1:
            middle = (holds + fails) // 2
            if self.numbers({**values, **dict.fromkeys(ids, middle)}) is not None:
                holds = middle
            else:
                fails = middle
        return holds

    def shape(self, output: int, numbers: Sequence[int]) -> Shape:
        """The shape of an output, by tensor id, where its live terms have these numbers."""
        return tuple(
            size.evaluate(numbers) if isinstance(size, Affine) else size for size in self.shapes[output]
        )

    @property
    def live_blocks(self) -> int:
        """How many of the first blocks hold live integers."""
        return sum(1 for block in self.blocks if block.live)

    def numbers(self, values: Mapping[int, int]) -> list[int] | None:
        """The numbers of its live terms at these values of live integers, or None if the plan does not hold
        for them."""
        if not self.tape and not self.guards:  # nothing is live
            return []
        for symbol, low, high in self.limits:
            if not low <= values[symbol] <= high:
                return None
        try:
            numbers = evaluate(self.tape, values)
        except OverflowError:
            return None
        rest = self.guards[len(self.limits) :]
        return numbers if all(guard.holds(numbers) for guard in rest) else None

    def numbers_again(self, before: Sequence[int], values: Mapping[int, int]) -> list[int] | None:
        """`numbers` at the dims of earlier ones."""
        numbers, (moving, guards) = list(before), self.moving
        for index in moving:
            number = number_of(self.tape[index], numbers, values)
            if not -WIDTH_MAX <= number < WIDTH_MAX:
                return None
            numbers[index] = number
        for guard in guards:
            if not guard.holds(numbers):
                return None
        return numbers

    def __str__(self) -> str:
        return "\n".join(
            f"{launch.node:4} {launch.operator:40} {launch.module.kernel.name:20} {launch.groups}"
            for launch in self.launches
        )
