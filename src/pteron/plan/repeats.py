"""Calls that differ from an earlier one in their tensors only, such as the layers of a model: their
dispatches are those of the earlier call, with other tensors bound. An operator runs once for each kind of
call.

A dispatch of a repeated call has the kernel and the parameters of the first (the same objects), which is how
later stages know that their results repeat, too (`Collector`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pteron.graph import Constant
from pteron.ops import Call, Dispatch, Indices, LiveInt, Operand, OperandSlice, Scratch, Weight
from pteron.ops.dispatch import Bound
from pteron.ops.operand import BufferRef

_KINDS_KEPT = 512  # a plan has few kinds of calls, except for graphs that do not repeat
Kind: TypeAlias = tuple[Any, ...]


@dataclass(slots=True)
class Repeats:
    """The dispatches of the first call of each kind."""

    _first: dict[Kind, tuple[list[Operand], list[Dispatch]]] = field(default_factory=dict)

    def dispatches(
        self, call: Call, inputs: Sequence[object], outputs: Sequence[Operand | None], made: Iterable[Any]
    ) -> list[Dispatch | Indices]:
        """The dispatches of a call: those in `made`, unless a call of its kind came before."""
        operands, described = list[Operand](), [call.operator.name]
        _describe((inputs, outputs), {}, operands, described)
        kind = tuple(described)
        if kind in self._first:
            before, first = self._first[kind]
            return list(rebound(first, zip(before, operands, strict=True)))
        found = list(made)
        if len(self._first) < _KINDS_KEPT and all(isinstance(each, Dispatch) for each in found):
            self._first[kind] = operands, found
        return found


def rebound(dispatches: Iterable[Dispatch], pairs: Iterable[tuple[Operand, Operand]]) -> Iterable[Dispatch]:
    """The dispatches with other tensors in place of theirs."""
    return map(Exchange(pairs).dispatch, dispatches)


def rebind(dispatch: Dispatch, bindings: Mapping[str, Bound]) -> Dispatch:
    made = object.__new__(Dispatch)
    object.__setattr__(made, "kernel", dispatch.kernel)
    object.__setattr__(made, "bindings", bindings)
    object.__setattr__(made, "parameters", dispatch.parameters)
    object.__setattr__(made, "threads", dispatch.threads)
    object.__setattr__(made, "groups", dispatch.groups)
    return made


class Exchange:
    """Tensors, constants and scratch memory of one call for those of another."""

    def __init__(self, pairs: Iterable[tuple[Operand, Operand]]) -> None:
        self._tensors: dict[int, Operand] = {}
        self._constants: dict[int, Constant] = {}
        self._scratch: dict[int, Scratch] = {}
        for old, new in pairs:
            self._tensors[id(old.tensor)] = new
            if isinstance(old.buffer, Weight) and isinstance(new.buffer, Weight):
                for mine, other in zip(_parts(old.buffer), _parts(new.buffer), strict=True):
                    self._constants[id(mine.constant)] = other.constant

    def dispatch(self, old: Dispatch) -> Dispatch:
        return rebind(old, {name: self.bound(bound) for name, bound in old.bindings.items()})

    def bound(self, old: Bound) -> Bound:
        if isinstance(old, Operand):
            new = self._tensors.get(id(old.tensor))
            buffer: BufferRef | Scratch
            if isinstance(old.buffer, Scratch):
                buffer = self.scratch(old.buffer)
            elif isinstance(old.buffer, Weight):
                buffer = self._other_weight(old.buffer)
            else:
                assert new is not None
                buffer = new.buffer
            return Operand(old.tensor if new is None else new.tensor, old.shape, old.storage, buffer)
        if isinstance(old, OperandSlice):
            of = self.bound(old.of)
            assert isinstance(of, Operand)
            return OperandSlice(of, old.first)
        return self._other_weight(old) if isinstance(old, Weight) else self.scratch(old)

    def scratch(self, old: Scratch) -> Scratch:
        if id(old) not in self._scratch:
            self._scratch[id(old)] = Scratch(old.count, old.storage)
        return self._scratch[id(old)]

    def _other_weight(self, old: Weight) -> Weight:
        constant = self._constants[id(old.constant)]
        rest = tuple(map(self._other_weight, old.rest)) if old.rest else ()
        return Weight(constant, old.shape, old.layout, old.arguments, old.count, old.storage, rest)


def _parts(weight: Weight) -> tuple[Weight, ...]:
    return (weight, *weight.rest)


def _describe(values: Any, numbers: dict[object, int], operands: list[Operand], kind: list[Any]) -> None:
    """Add what an operator's dispatches depend on to `kind`, and to `operands` the tensors in order. Each
    tensor, buffer and constant has a number, as operators ask which are the same."""
    for value in values:
        if isinstance(value, Operand):
            operands.append(value)
            tensor, buffer = value.tensor, value.buffer
            kind += tensor.dtype, tensor.shape_max, sizes_of(value.shape), value.storage
            kind.append(numbers.setdefault(tensor.id, len(numbers)))
            if isinstance(buffer, Weight):
                for part in _parts(buffer):
                    kind += part.layout, part.arguments, part.shape, part.count, part.storage
                    kind.append(numbers.setdefault(part.constant, len(numbers)))
            else:
                kind += type(buffer), numbers.setdefault(buffer, len(numbers))
        elif isinstance(value, (tuple, list)):
            kind.append(len(value))
            _describe(value, numbers, operands, kind)
        elif isinstance(value, LiveInt):
            kind.append(value.expression)
        else:
            kind += type(value), str(value) if isinstance(value, float) else value  # 0.0 equals -0.0


def sizes_of(shape: Any) -> tuple[Any, ...]:
    return tuple([size.expression if isinstance(size, LiveInt) else size for size in shape])
