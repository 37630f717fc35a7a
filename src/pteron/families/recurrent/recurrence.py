"""Operators over a recurrent state: each call reads the state and writes it back.

`recurrent("pteron.name", "x weight -> out")` defines two operators of one function:

    pteron.name.default(x, weight, state!, start_pos)   the next steps of one sequence, state [1, ...]
    pteron.name_rows(x, weight, state!, places)         one step of each row's sequence, state [slots, ...]

`places` has (position, slot) of each row, (-1, -1) of a padding row, which writes nothing. Position 0 means a
state of zeros, whatever the buffer holds: a sequence that starts anew needs no other reset.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pteron.graph import Node, Tensor
from pteron.ops import AnyInt, Dispatch, Operand, Target, define, require
from pteron.ops.operator import Compute, ShapeRule

# The operators for one sequence. Their state is the argument `state`.
RECURRENT: set[str] = set()


@dataclass(frozen=True)
class Sequences:
    """Whose states a call changes: one sequence's, from `start` on, or that of each row."""

    start: AnyInt = 0
    places: Operand | None = None

    def check(self, state: Operand, rows: AnyInt) -> None:
        """Check the leading dim of a state [slots, ...], for a call with this number of rows or steps."""
        if self.places is None:
            require(state.shape[0] == 1, "the state must be of one sequence", state)
            require(self.start >= 0, f"position {self.start} is negative", state)
        else:
            require(self.places.shape == (rows, 2), "places are [rows, 2]", self.places)

    def arguments(self, state: Operand) -> dict[str, Any]:
        """Of kernels that use lib/sequences.wgsl."""
        return {"places": self.places, "state": state, "start": self.start, "slots": state.shape[0]}


def recurrent(name: str, signature: str, *, shape: ShapeRule) -> Callable[[Compute], Compute]:
    """A decorator of `compute(*inputs, state, sequences, out)`, which yields the dispatches; it may take
    `target=` too."""
    inputs, outputs = signature.split("->")

    def register(compute: Compute) -> Compute:
        takes_target = "target" in inspect.signature(compute).parameters

        def alone(*arguments: Any, target: Target) -> Iterator[Dispatch]:
            *given, start, out = arguments
            extra = {"target": target} if takes_target else {}
            yield from compute(*given, Sequences(start), out, **extra)

        def rows(*arguments: Any, target: Target) -> Iterator[Dispatch]:
            *given, places, out = arguments
            extra = {"target": target} if takes_target else {}
            yield from compute(*given, Sequences(places=places), out, **extra)

        define(f"{name}.default", f"{inputs}state! start_pos:int ->{outputs}", shape=shape, compute=alone)
        define(f"{name}_rows", f"{inputs}state! places ->{outputs}", shape=shape, compute=rows)
        RECURRENT.add(f"{name}.default")
        return compute

    return register


def state_of(node: Node) -> Tensor:
    """The state of a node of such an operator: it comes before the position and the output."""
    state = node.args[-3]
    assert isinstance(state, Tensor)
    return state
