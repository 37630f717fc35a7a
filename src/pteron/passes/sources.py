"""Where live integers come from: an element of an input, or what the host computes from inputs at a call.

Enter: a graph and its calls. Leave: a `Source` for each live integer that is not computed from others. One
that does not follow from integer inputs is a GraphError.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from pteron.dtypes import DType
from pteron.errors import GraphError, ShapeError
from pteron.families.symint.integers import ELEMENTS_MAX, HOST_OPERATORS
from pteron.graph import Graph, SymInt, Tensor, Value, ValueList
from pteron.graph.values import numel
from pteron.ops import Call, Kind
from pteron.ops.call import mutated_ids
from pteron.ops.operand import HostArray

_STEPS_MAX = 100  # of one live integer


@dataclass(frozen=True, slots=True)
class Ref:
    """A value of the graph, as the argument of a step."""

    id: int


Argument: TypeAlias = "Ref | int | float | str | tuple[Argument, ...] | None"


@dataclass(frozen=True, slots=True)
class HostStep:
    """An integer operator that the host computes; `node` is what messages call it."""

    node: str
    operator: str
    arguments: tuple[Argument, ...]
    results: tuple[int, ...]
    dtype: DType | None  # of the results; None for live integers


@dataclass(frozen=True, slots=True)
class HostProgram:
    """Steps in order, the last of which gives the live integer; inputs are (value id, position), constants
    (value id, array)."""

    inputs: tuple[tuple[int, int], ...]
    constants: tuple[tuple[int, HostArray], ...]
    steps: tuple[HostStep, ...]

    def run(self, given: Mapping[int, HostArray | int]) -> int:
        """The live integer, from inputs by their positions. ShapeError for elements that are not there."""
        values: dict[int, HostArray | int] = {id: _widened(given[position]) for id, position in self.inputs}
        values.update(self.constants)
        for step in self.steps:
            arguments = [_valued(argument, values) for argument in step.arguments]
            try:
                computed = HOST_OPERATORS[step.operator](*arguments)
                for id, result in zip(
                    step.results, computed if isinstance(computed, list) else [computed], strict=True
                ):
                    values[id] = result if step.dtype is None else _typed(np.asarray(result), step.dtype)
            except (ValueError, IndexError, TypeError, ArithmeticError) as error:
                shown = ", ".join(
                    str(each.tolist() if hasattr(each, "tolist") else each) for each in arguments
                )
                raise ShapeError(f"{step.node}({shown:.200}): {error}") from None
        return int(values[self.steps[-1].results[0]])


@dataclass(frozen=True, slots=True)
class Source:
    """Where a live integer comes from: one element of a graph input, or (dim None) the input itself; or,
    without an input, a program for the host."""

    symbol: int
    input: int | None
    dim: int | None = None
    index: int = 0
    program: HostProgram | None = None

    @property
    def inputs(self) -> tuple[int, ...]:
        """The positions of the inputs that decide it."""
        given = tuple(position for _, position in self.program.inputs) if self.program else ()
        return given if self.input is None else (self.input,)

    def __str__(self) -> str:
        inputs = ", ".join(f"input {position}" for position in self.inputs) or "constants"
        if self.program:
            return f"{inputs}, by {', '.join(step.node for step in self.program.steps)} on the host"
        return inputs + ("" if self.dim is None else f", element {self.index} of dim {self.dim}")


def sources(graph: Graph, calls: tuple[Call, ...]) -> tuple[Source, ...]:
    """The live integers that come from a call's inputs."""
    found = [
        Source(value.id, position) for position, value in enumerate(graph.inputs) if isinstance(value, SymInt)
    ]
    maker = {id: call for call in calls for id in call.written_ids}
    mutated = mutated_ids(calls)
    for call in calls:
        if call.operator.kind is Kind.SOURCE:
            tensor, dim, index = call.inputs
            (symbol,) = call.outputs
            assert isinstance(tensor, Tensor)  # by its signature
            assert isinstance(symbol, SymInt)
            _check_element(graph, call, tensor, dim, index)
            if tensor in graph.inputs and isinstance(dim, int) and isinstance(index, int):
                found.append(Source(symbol.id, graph.inputs.index(tensor), dim, index))
            else:
                program = _Programmer(graph, call, maker, mutated).program()
                found.append(Source(symbol.id, None, program=program))
    return tuple(found)


def _check_element(graph: Graph, call: Call, tensor: Tensor, dim: Value, index: Value) -> None:
    if tensor.dtype.is_float:
        raise GraphError(f"{graph.name}, {call.node}: a SymInt is read from integers, not {tensor.dtype}")
    place = f"{graph.name}, {call.node}: {tensor} has {{}} {index} along dim {dim}"
    rank, shape = len(tensor.shape_max), tensor.shape_max
    if not isinstance(dim, int) or not isinstance(index, int) or not -rank <= dim < rank:
        raise GraphError(place.format("no element"))
    if not -shape[dim] <= index < shape[dim]:
        raise GraphError(place.format("no element"))
    if numel(shape) != shape[dim]:
        raise GraphError(place.format("several elements"))


class _Programmer:
    """Collects the calls that compute a live integer, back to inputs and constants."""

    def __init__(self, graph: Graph, call: Call, maker: Mapping[int, Call], mutated: set[int]) -> None:
        self._graph = graph
        self._call = call
        self._maker = maker
        self._mutated = mutated
        self._position = {value.id: position for position, value in enumerate(graph.inputs)}
        self._inputs: dict[int, int] = {}
        self._constants: dict[int, HostArray] = {}

    def program(self) -> HostProgram:
        needed, waiting = {self._call}, [self._call]
        while waiting:
            call = waiting.pop()
            read: tuple[Tensor | SymInt, ...] = (*call.reads, *call.symbols)
            for value in read:
                made = self._origin(value, call)
                if made and made not in needed:
                    needed.add(made)
                    waiting.append(made)
            if len(needed) > _STEPS_MAX:
                self._refuse(self._call, f"it takes more than {_STEPS_MAX} operators")
        steps = map(self._step, sorted(needed, key=lambda call: call.node.index))
        return HostProgram(tuple(self._inputs.items()), tuple(self._constants.items()), tuple(steps))

    def _origin(self, value: Tensor | SymInt, reader: Call) -> Call | None:
        """The call that makes a value; None for an input or a constant, which is noted."""
        if isinstance(value, Tensor) and value.dtype.is_float:
            self._refuse(self._maker.get(value.id, reader), f"{value} is of floats")
        if value.id in self._mutated:
            self._refuse(reader, f"{value} is a state")
        if value.id in self._position:
            self._inputs[value.id] = self._position[value.id]
            return None
        if isinstance(value, Tensor) and value.constant is not None:
            array = value.constant.numpy()
            self._constants[value.id] = array.copy() if array.dtype.kind == "b" else array.astype(np.int64)
            return None
        made = self._maker.get(value.id)
        if made is None or made.operator.name not in HOST_OPERATORS:
            self._refuse(
                made or reader, "the host has no such operator" if made else f"nothing computes {value}"
            )
        return made

    def _step(self, call: Call) -> HostStep:
        results = tuple(value for value in call.outputs if value is not None)
        made = [value for value in results if isinstance(value, Tensor)]
        return HostStep(
            f"node {call.node.index} {call.node.name}",
            call.operator.name,
            tuple(map(_argument, call.inputs)),
            tuple(value.id for value in results),
            made[0].dtype if made else None,
        )

    def _refuse(self, call: Call, problem: str) -> None:
        raise GraphError(
            f"{self._graph.name}, {self._call.node}: this integer depends on {call.node}, and {problem}. "
            "The host computes such integers before a call, from integer inputs; pass it as an integer input"
        )


def _argument(value: Value) -> Argument:
    if isinstance(value, (Tensor, SymInt)):
        return Ref(value.id)
    if isinstance(value, ValueList):
        return tuple(map(_argument, value.items))
    return value


def _valued(argument: Argument, values: Mapping[int, HostArray | int]) -> object:
    if isinstance(argument, Ref):
        return values[argument.id]
    return tuple(_valued(item, values) for item in argument) if isinstance(argument, tuple) else argument


def _widened(value: HostArray | int) -> HostArray | int:
    return value if isinstance(value, int) or value.dtype.kind == "b" else value.astype(np.int64)


def _typed(result: HostArray, dtype: DType) -> HostArray | int:
    """As the type has it, where that has fewer than 32 bits: wider integers are checked at the end."""
    if result.size > ELEMENTS_MAX:
        raise ValueError(f"{list(result.shape)} is more than {ELEMENTS_MAX:,} elements")
    return _widened(result if dtype in (DType.I32, DType.I64) else result.astype(dtype.numpy))
