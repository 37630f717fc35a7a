"""Two graphs -> the nodes that differ, by what they read: scalars, lists, constants by content, values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeAlias

import numpy as np

from pteron.format.records import (
    DelegateCall,
    FreeCall,
    IndexList,
    Instruction,
    JumpFalseCall,
    KernelCall,
    MethodRecord,
    MoveCall,
    TensorRecord,
)
from pteron.format.source import contents, is_same
from pteron.graph import Constant, Graph, Node, SymInt, Tensor, Value, ValueList
from pteron.graph.values import Item, numel
from pteron.ops import OPERATORS
from pteron.tools.alignment import align
from pteron.tools.graph_structure import leaves
from pteron.tools.inputs import as_float

_ELEMENTS = 1 << 20  # of a constant, compared at a time
_DIGEST = 64  # characters of a key that is a hash of the content; the first twelve are shown
Missing: TypeAlias = Collection[str]  # keys of constants that the given files do not have


@dataclass(frozen=True, slots=True)
class ConstantDifference:
    """How the content of two constants differs; elements are only compared if the shapes are equal."""

    is_transposed: bool
    differing: int = 0
    elements: int = 0
    largest: float = 0.0
    index: tuple[int, ...] = ()  # of the largest difference

    def __str__(self) -> str:
        if self.is_transposed:
            return "transposed"
        return (
            f"{self.differing:,} of {self.elements:,} elements differ, "
            f"the most by {self.largest:.4g} at {list(self.index)}"
        )


@dataclass(frozen=True, slots=True)
class ArgumentChange:
    """An argument, a result or an input that differs, in words; for constants also by how much."""

    name: str
    before: str
    after: str
    constant: ConstantDifference | None = None

    def __str__(self) -> str:
        by = f", {self.constant}" if self.constant else ""
        return f"{self.name}: {self.before} → {self.after}{by}"


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node whose operator or arguments differ. None: only the other graph has it."""

    where: str  # "forward, delegate 0"
    before: str | None  # "node 7 aten.linear.default"
    after: str | None
    arguments: tuple[ArgumentChange, ...] = ()


def method_changes(before: MethodRecord, after: MethodRecord) -> Iterator[NodeChange]:
    """What differs outside the delegates: inputs, host operators with their constants, order of values."""
    old, new = _method_graph(before), _method_graph(after)
    types = zip_longest(map(_type, old.inputs), map(_type, new.inputs), fillvalue="None")
    changed = [ArgumentChange(f"input {at}", *pair) for at, pair in enumerate(types) if pair[0] != pair[1]]
    if changed:
        yield NodeChange(after.name, "inputs", "inputs", tuple(changed))
    yield from node_changes(old, new, after.name)


def node_changes(before: Graph, after: Graph, where: str, missing: Missing = ()) -> Iterator[NodeChange]:
    """The nodes that differ between two graphs of programs, and the outputs that come from elsewhere."""
    comparison = _GraphComparison(before, after, missing)
    for old, new in comparison.pairs:
        changed = comparison.node(old, new) if old and new else ()
        if changed or old is None or new is None or old.name != new.name:
            names = [name_of(node) if node else None for node in (old, new)]
            yield NodeChange(where, names[0], names[1], tuple(changed))
    outputs = zip_longest(before.outputs, after.outputs)
    moved = [each for at, pair in enumerate(outputs) for each in comparison.argument(f"output {at}", *pair)]
    if moved:
        yield NodeChange(where, "outputs", "outputs", tuple(moved))


class _GraphComparison:
    def __init__(self, before: Graph, after: Graph, missing: Missing) -> None:
        self.pairs = align(before, after)
        self._missing = missing
        self._sources = _sources(before), _sources(after)
        self._same = {
            old.id: new.id for old, new in zip(before.inputs, after.inputs, strict=False)
        }  # a value of `before` -> its counterpart
        for old_node, new_node in self.pairs:
            if old_node and new_node:
                written = zip(leaves(old_node.args[-1]), leaves(new_node.args[-1]), strict=False)
                for old, new in written:
                    self._same.setdefault(old.id, new.id)

    def node(self, before: Node, after: Node) -> list[ArgumentChange]:
        """Arguments of different operators have no counterparts: only their results are compared."""
        changes: list[ArgumentChange] = []
        if before.name == after.name:
            names = _argument_names(before)
            for position, pair in enumerate(zip_longest(before.args[:-1], after.args[:-1])):
                name = names[position] if position < len(names) else f"argument {position}"
                changes += self.argument(name, *pair)
        types = [", ".join(map(_type, leaves(node.args[-1]))) for node in (before, after)]
        if types[0] != types[1]:
            changes.append(ArgumentChange("output", types[0], types[1]))
        return changes

    def argument(self, name: str, before: Value, after: Value) -> Iterator[ArgumentChange]:
        if isinstance(before, ValueList) and isinstance(after, ValueList):
            for at, pair in enumerate(zip_longest(before.items, after.items)):
                yield from self.argument(f"{name}[{at}]", *pair)
            return
        old, new = (value.constant if isinstance(value, Tensor) else None for value in (before, after))
        if old is not None and new is not None:
            if not self._is_equal(old, new):
                by = None if self._is_missing(old, new) else _difference(old, new)
                yield ArgumentChange(name, self._text(before, 0), self._text(after, 1), by)
        elif isinstance(before, (Tensor, SymInt)) and isinstance(after, (Tensor, SymInt)):
            if self._same.get(before.id) != after.id:
                yield ArgumentChange(name, self._text(before, 0), self._text(after, 1))
        elif before != after and repr(before) != repr(after):  # NaN differs from itself
            yield ArgumentChange(name, self._text(before, 0), self._text(after, 1))

    def _is_equal(self, before: Constant, after: Constant) -> bool:
        if (before.dtype, before.shape) != (after.dtype, after.shape):
            return False
        return (
            before.key == after.key if self._is_missing(before, after) else is_same(before.data, after.data)
        )

    def _is_missing(self, *constants: Constant) -> bool:
        return any(constant.key in self._missing for constant in constants)

    def _text(self, value: Value, side: int) -> str:
        if isinstance(value, ValueList):
            return f"[{', '.join(self._text(item, side) for item in value.items)}]"
        if isinstance(value, Tensor) and value.constant is not None:
            key = value.constant.key
            short = f"{key[:12]}…" if len(key) == _DIGEST else key
            return f"constant {short} {_type(value)}"
        if isinstance(value, (Tensor, SymInt)):
            return self._sources[side].get(value.id, str(value))
        return repr(value)


def name_of(node: Node) -> str:
    return f"node {node.index} {node.name}"


def _type(value: Item) -> str:
    return f"{value.dtype}{list(value.shape_max)}" if isinstance(value, Tensor) else "integer"


def _argument_names(node: Node) -> Sequence[str]:
    known = OPERATORS.get(node.name)
    return [argument.name for argument in known.signature.arguments] if known else ()


def _sources(graph: Graph) -> dict[int, str]:
    """What each value is, in words: the node that makes it, or the input."""
    found = {value.id: f"input {position}" for position, value in enumerate(graph.inputs)}
    for node in graph.nodes:
        written = tuple(leaves(node.args[-1]))
        for position, value in enumerate(written):
            which = f", output {position}" if len(written) > 1 else ""
            found.setdefault(value.id, f"{name_of(node)}{which}")
    return found


# Constants ---------------------------------------------------------------------------------------


def _difference(before: Constant, after: Constant) -> ConstantDifference | None:
    is_turned = before.dtype is after.dtype and len(before.shape) == 2 and before.shape == after.shape[::-1]
    if is_turned and before.numpy().T.tobytes() == bytes(contents(after.data)):
        return ConstantDifference(is_transposed=True)
    if before.shape != after.shape:
        return None
    count = numel(before.shape)
    differing, largest, place = 0, -1.0, 0
    for start in range(0, count, _ELEMENTS):
        old, new = (_elements(constant, start) for constant in (before, after))
        same = (old == new) | (np.isnan(old) & np.isnan(new))
        with np.errstate(invalid="ignore"):  # inf - inf
            apart = np.where(same, 0.0, np.abs(old - new))
        apart[np.isnan(apart)] = np.inf
        differing += int((~same).sum())
        if apart.max() > largest:
            largest, place = float(apart.max()), start + int(apart.argmax())
    index = tuple(int(at) for at in np.unravel_index(place, before.shape)) if differing else ()
    return ConstantDifference(False, differing, count, max(largest, 0.0), index)


def _elements(constant: Constant, start: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    size = constant.dtype.itemsize
    data = contents(constant.data[start * size : (start + _ELEMENTS) * size])
    return as_float(np.frombuffer(data, constant.dtype.numpy), constant.dtype)


# Methods -----------------------------------------------------------------------------------------


def _method_graph(record: MethodRecord) -> Graph:
    """A method's instructions as nodes, so that they are compared like those of delegates. A tensor is made
    by the first instruction that has it."""
    values = [_value(record, id) for id in range(len(record.values))]
    known = {*record.inputs, *(id for id, each in enumerate(values) if not _is_made(each))}
    nodes = []
    for index, instruction in enumerate(record.instructions):
        name, args = _called(record, instruction)
        made = dict.fromkeys(id for id in args if id not in known)
        known.update(made)
        read = tuple(values[id] for id in args if id not in made)
        output = ValueList(-1, tuple(value for id in made if isinstance(value := values[id], Tensor)))
        nodes.append(Node(index, name, (*read, output)))
    inputs, outputs = (
        tuple(each if isinstance(each := values[id], Tensor) else SymInt(id) for id in ids)
        for ids in (record.inputs, record.outputs)
    )
    return Graph(record.name, tuple(nodes), inputs, outputs)


def _is_made(value: Value) -> bool:
    return isinstance(value, Tensor) and value.constant is None


def _called(record: MethodRecord, instruction: Instruction) -> tuple[str, Sequence[int]]:
    match instruction:
        case KernelCall(operator, args):
            return record.operators[operator], args
        case DelegateCall(delegate, args):
            return f"delegate {delegate}", args
        case MoveCall(source, target):
            return "move", (source, target)
        case JumpFalseCall(condition, _):
            return "jump", (condition,)
        case FreeCall(value):
            return "free", (value,)


def _value(record: MethodRecord, id: int) -> Value:
    """A value of a method as graphs have it; an integer that is an input changes from call to call."""
    found = record.values[id]
    if isinstance(found, IndexList):
        items = (_value(record, item) if item >= 0 else None for item in found.items)
        return ValueList(id, tuple(items))  # type: ignore[arg-type]  # lists do not nest
    if not isinstance(found, TensorRecord):
        return SymInt(id) if id in record.inputs else found
    data = found.data if found.is_constant else None
    key = found.name or f"value {id}"
    constant = Constant(key, found.dtype, found.sizes, data) if data is not None else None
    return Tensor(id, found.dtype, found.sizes, constant)
