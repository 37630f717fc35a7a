"""Rewrites: several calls become one call of a `pteron.` operator, found by a function over the flow of
values.

    @rewrite("silu_mul")
    def silu_mul(flow: Flow) -> Iterator[Replacement]:
        for product in flow.of("aten.mul.Tensor"):
            ...
            yield Replacement((sigmoid, gate, product), Call(...))

A rewrite says which calls compute the same. `passes/rewrite.py` proves that the change is allowed: no other
call reads a removed value, and no value that is read changes in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count, permutations
from typing import TypeAlias

from pteron.graph import Graph, SymInt, Tensor, Value
from pteron.ops.call import Call

_VIEWS = ("aten.view_copy.default", "aten.clone.default")


@dataclass(frozen=True, slots=True)
class Replacement:
    """Calls to remove, and the call that computes those of their results that other calls use."""

    old: tuple[Call, ...]
    new: Call


class Flow:
    """Calls in order, with who makes and who reads each value."""

    def __init__(self, graph: Graph, calls: Iterable[Call]) -> None:
        self.calls = tuple(calls)
        self.position = {call: index for index, call in enumerate(self.calls)}
        self.makers: dict[int, list[Call]] = {}
        self.readers: dict[int, list[Call]] = {}
        self.outputs = frozenset(value.id for value in graph.outputs)
        for call in self.calls:
            for id in call.written_ids:
                self.makers.setdefault(id, []).append(call)
            for id in call.read_ids:
                self.readers.setdefault(id, []).append(call)
        given = (value.id for value in graph.inputs)
        self._free_ids = count(1 + max((*given, *self.outputs, *self.makers, *self.readers), default=0))

    def new_id(self) -> int:
        """An id for a value that a rewrite adds, another one every time."""
        return next(self._free_ids)

    def of(self, name: str) -> Iterator[Call]:
        return (call for call in self.calls if call.operator.name == name)

    def maker(self, value: Value, name: str) -> Call | None:
        """The one call that makes a value, if it is of this operator."""
        makers = self.makers.get(value.id, ()) if isinstance(value, (Tensor, SymInt)) else ()
        return makers[0] if len(makers) == 1 and makers[0].operator.name == name else None

    def behind_views(
        self, value: Value, through: Callable[[Call], bool] = lambda view: True
    ) -> tuple[Value, tuple[Call, ...]]:
        """The tensor behind a chain of views that keep its element order and type, and these views."""
        views: list[Call] = []
        while view := next(filter(None, (self.maker(value, name) for name in _VIEWS)), None):
            if not through(view):
                break
            views.append(view)
            value = view.inputs[0]
        return value, tuple(views)

    def is_fixed(self, value: Value) -> bool:
        """Whether a tensor never changes after it is written, so that a later call may read it."""
        makers = self.makers.get(value.id, []) if isinstance(value, Tensor) else []
        is_given = isinstance(value, Tensor) and value.constant is not None
        return len(makers) + is_given <= 1 and not any(value in call.mutated for call in makers)


Find: TypeAlias = Callable[[Flow], Iterator[Replacement]]
REWRITES: dict[str, Find] = {}


def rewrite(name: str) -> Callable[[Find], Find]:
    """Register a rewrite under the name by which it is switched off."""

    def register(find: Find) -> Find:
        if name in REWRITES:
            raise ValueError(f"rewrite {name} is defined twice")
        REWRITES[name] = find
        return find

    return register


def orders(call: Call) -> Iterator[tuple[Value, ...]]:
    """A call's inputs in every order, for operators that commute."""
    return permutations(call.inputs)
