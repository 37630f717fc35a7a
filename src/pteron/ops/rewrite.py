"""Fusion: rewrites replace calls at the maximum shapes, joins merge dispatches at the live shapes.

A rewrite is a function over the flow of values. It makes several calls one call of a `pteron.` operator:

    @rewrite("silu_mul")
    def silu_mul(flow: Flow) -> Iterator[Replacement]:
        for product in flow.of("aten.mul.Tensor"):
            ...
            yield Replacement((sigmoid, gate, product), Call(...))

It says which calls compute the same. `passes/rewrite.py` proves that the change is allowed: no other
call reads a removed value, and no value that is read changes in between.

A join is a function of two consecutive dispatches, of one operator or of neighbours. It returns one dispatch
that does the work of both, or None:

    @join("merge_norm")
    def merge_norm(first: Dispatch, second: Dispatch, is_read: IsRead) -> Dispatch | None:
        if first.kernel.name == ... and same_memory(first.bindings["out"], second.bindings["x"]):
            return Dispatch(...)

It need not write what no later dispatch reads. `plan/collect.py` applies it only if it writes to no buffer
that it binds twice, and the device allows its number of buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count, permutations
from typing import TypeAlias, TypeVar

from pteron.graph import Graph, Shape, SymInt, Tensor, Value, ValueList
from pteron.ops.call import Call, mutated_ids
from pteron.ops.dispatch import Bound, Dispatch, elements
from pteron.ops.operand import BufferRef, Operand, OperandSlice, Scratch

_COPY = "aten.clone.default"
_VIEWS = ("aten.view_copy.default", _COPY)
_WHOLE_MAX = 256  # the largest whole number up to which all are exact in bf16, and in wider types
_COPIES = ("et_vk.prepack.default", "dim_order_ops._to_dim_order_copy.default", _COPY)  # of whole tensors


@dataclass(frozen=True, slots=True)
class Replacement:
    """Calls to remove, and the call that computes those of their results that other calls use, perhaps with a
    view of its result."""

    old: tuple[Call, ...]
    new: Call
    view: Call | None = None

    @property
    def made(self) -> tuple[Call, ...]:
        return (self.new,) if self.view is None else (self.new, self.view)


class Flow:
    """Calls in order, with who makes and who reads each value."""

    def __init__(self, graph: Graph, calls: Iterable[Call]) -> None:
        self.calls = tuple(calls)
        self.position = {call: index for index, call in enumerate(self.calls)}
        self.makers: dict[int, list[Call]] = {}
        self.readers: dict[int, list[Call]] = {}
        self._results = {value.id for value in graph.outputs}
        for call in self.calls:
            for id in call.written_ids:
                self.makers.setdefault(id, []).append(call)
            for id in call.read_ids:
                self.readers.setdefault(id, []).append(call)
        given = (value.id for value in graph.inputs)
        self._free_ids = count(1 + max((*given, *self._results, *self.makers, *self.readers), default=0))

    @cached_property
    def outputs(self) -> frozenset[int]:
        """The values that are seen after all calls: outputs of the graph, and states."""
        return frozenset(self._results | mutated_ids(self.calls))

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
IsRead: TypeAlias = Callable[[Bound], bool]  # whether a dispatch after the second one reads it
Join: TypeAlias = Callable[[Dispatch, Dispatch, IsRead], Dispatch | None]
_Fusion = TypeVar("_Fusion", Find, Join)
REWRITES: dict[str, Find] = {}
JOINS: dict[str, Join] = {}


def rewrite(name: str) -> Callable[[Find], Find]:
    """Register a rewrite under the name by which it is switched off."""
    return lambda find: _register(REWRITES, name, find)


def join(name: str) -> Callable[[Join], Join]:
    """Register a join under the name by which it is switched off."""
    return lambda find: _register(JOINS, name, find)


def _register(table: dict[str, _Fusion], name: str, find: _Fusion) -> _Fusion:
    if name in REWRITES or name in JOINS:
        raise ValueError(f"rewrite or join {name} is defined twice")
    table[name] = find
    return find


def orders(call: Call) -> Iterator[tuple[Value, ...]]:
    """A call's inputs in every order, for operators that commute."""
    return permutations(call.inputs)


def memory_of(bound: Bound) -> BufferRef | Scratch:
    """The buffer of a binding; two scratch buffers are never equal."""
    bound = bound.of if isinstance(bound, OperandSlice) else bound
    return bound.buffer if isinstance(bound, Operand) else bound


def same_memory(a: Bound, b: Bound) -> bool:
    """Whether two dispatches bind the same elements, whatever shape they see them in."""
    return memory_of(a) == memory_of(b) and elements(a) == elements(b) and a.storage is b.storage


def keeps_shape(view: Call) -> bool:
    """Whether a copy or a view keeps the live shape of its product, up to leading ones: a view has the same
    columns, and only one of its other dims can exceed 1, so that the number of elements determines it."""
    if view.operator.name == _COPY:
        return True
    (shown, sizes), shape = view.inputs, _trimmed(view.outputs[0])
    if not shape or shape != _trimmed(shown):
        return False
    return items_of(sizes)[-1:] == shape[-1:] and sum(size > 1 for size in shape[:-1]) <= 1


def fits_sum(product: Call, made: Value, addend: Value, total: Value) -> bool:
    """Whether a product, its addend and the sum have one shape and type. Live shapes may still differ in dims
    of size 1, which the fused operator handles."""
    same = _trimmed(made) == _trimmed(addend) and shape_of(addend) == shape_of(total)
    return len(product.outputs) == 1 and same and dtype_of(made) is dtype_of(addend) is dtype_of(total)


def _trimmed(value: object) -> tuple[int, ...] | None:
    """The largest shape of a tensor, without leading ones."""
    shape = shape_of(value)
    return shape and without_ones(shape)


def without_ones(shape: Shape) -> Shape:
    """A shape without leading ones."""
    return shape[next((dim for dim, size in enumerate(shape) if size != 1), len(shape)) :]


def items_of(value: Value) -> tuple[Value, ...]:
    return value.items if isinstance(value, ValueList) else value if isinstance(value, tuple) else ()


def constant_number(flow: Flow, value: Value) -> float | None:
    """The value of a float tensor of one element that is a constant, or copied from one that no call changes.
    It may be copied from a small whole number of another type: exporters store 3 as an integer."""
    if not isinstance(value, Tensor) or not value.dtype.is_float:
        return None
    types: list[object] = [value.dtype]
    while copied := next(filter(None, (flow.maker(value, name) for name in _COPIES)), None):
        value = copied.inputs[0]
        types.append(dtype_of(value))
    if not isinstance(value, Tensor) or value.constant is None or value.constant.shape not in ((), (1,)):
        return None
    number = float(value.constant.numpy().reshape(()))
    is_small = number.is_integer() and abs(number) <= _WHOLE_MAX
    is_kept = set(types) <= ({types[0], types[-1]} if is_small else {types[0]})
    return number if is_kept and flow.is_fixed(value) else None


def shape_of(value: object) -> tuple[int, ...] | None:
    return value.shape_max if isinstance(value, Tensor) else None


def dtype_of(value: object) -> object:
    return value.dtype if isinstance(value, Tensor) else None
