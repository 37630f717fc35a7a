"""Checks at load of a method's instructions against the values, operators and delegates they use.

An error is a GraphError that names the instruction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from pteron.errors import GraphError
from pteron.format.records import (
    DelegateCall,
    EValue,
    IndexList,
    Instruction,
    JumpFalseCall,
    KernelCall,
    MethodRecord,
    MoveCall,
    TensorRecord,
)
from pteron.graph import Graph, SymInt, Tensor
from pteron.host.operator import SCALAR_KINDS, HostOperator


def check_method(
    where: str, record: MethodRecord, operators: Sequence[HostOperator], graphs: Sequence[Graph]
) -> None:
    """Raise a GraphError for the first wrong instruction."""
    for index, instruction in enumerate(record.instructions):
        problem = None
        match instruction:
            case KernelCall():
                name = record.operators[instruction.operator]
                problem = _kernel(record, instruction, operators[instruction.operator])
                problem = problem and f"{name}: {problem}"
            case DelegateCall():
                problem = _delegate(record, instruction, graphs[instruction.delegate])
            case MoveCall(source, target):
                kinds = {isinstance(record.values[id], TensorRecord) for id in (source, target)}
                if len(kinds) > 1 and record.values[source] is not None and record.values[target] is not None:
                    problem = f"value %{source} is moved to %{target}, which is of another kind"
            case JumpFalseCall(condition, _):
                if not isinstance(record.values[condition], (bool, int, TensorRecord, type(None))):
                    problem = f"a jump on {describe_record(record.values[condition])}, not a boolean"
        if problem:
            raise GraphError(f"{where}, instruction {index}: {problem}")


# Operators on the host --------------------------------------------------------------------------


def _kernel(record: MethodRecord, call: KernelCall, operator: HostOperator) -> str | None:
    if len(call.args) < len(operator.parameters):
        return f"expected at least {len(operator.parameters)} arguments, found {len(call.args)}"
    for parameter, id in zip(operator.parameters, call.args, strict=False):
        value = record.values[id]
        if not _is_kind(parameter.kind, value, record):
            return f"argument {parameter.name} takes {parameter.kind}, found {describe_record(value)}"
        written = _tensors(value, record) if parameter.is_written else ()
        if any(tensor.is_constant for tensor in written):
            return f"argument {parameter.name} is written, but %{id} is a constant"
    return None


def _is_kind(kind: str, value: EValue, record: MethodRecord) -> bool:
    """Whether a value fits the kind in an operator's schema; True if that is unknown here."""
    if value is None:
        return True  # absent, or unknown until the method runs
    if kind.startswith("Optional["):
        kind = kind.removeprefix("Optional[").removesuffix("]")
    item = kind.removeprefix("List[").removesuffix("]")
    if isinstance(value, IndexList):
        members = (record.values[id] for id in value.items if id >= 0)
        return kind == "any" or (kind != item and all(_is_kind(item, member, record) for member in members))
    if isinstance(value, tuple):
        return kind in ("any", "List[float]", "List[bool]", "List[number]")
    types = _TYPES.get(item)
    return types is None or isinstance(value, types)


_TYPES = {**SCALAR_KINDS, "Tensor": (TensorRecord,), "ScalarType": (int,), "MemoryFormat": (int,)}


def _tensors(value: EValue, record: MethodRecord) -> Iterator[TensorRecord]:
    if isinstance(value, TensorRecord):
        yield value
    elif isinstance(value, IndexList):
        for id in value.items:
            member = record.values[id] if id >= 0 else None
            if isinstance(member, TensorRecord):
                yield member


def describe_record(value: EValue) -> str:
    """A method's value for error messages."""
    if isinstance(value, TensorRecord):
        return f"a tensor {value.dtype}{list(value.sizes)}"
    return f"a list of {value.kind}" if isinstance(value, IndexList) else repr(value)


# Delegates --------------------------------------------------------------------------------------


def _delegate(record: MethodRecord, call: DelegateCall, graph: Graph) -> str | None:
    border = (*graph.inputs, *graph.outputs)
    if len(call.args) != len(border):
        return (
            f"delegate {graph.name} has {len(graph.inputs)} inputs and {len(graph.outputs)} outputs, but is "
            f"given {len(call.args)} values. Where mutated buffers became outputs of the graph, export with "
            "the compile option alias_buffer_mutations=True"
        )
    for position, (id, value) in enumerate(zip(call.args, border, strict=True)):
        given, is_output = record.values[id], position >= len(graph.inputs)
        problem = _mismatch(given, value)
        if not problem and is_output and isinstance(given, TensorRecord) and given.is_constant:
            problem = "is written, but is a constant"
        if problem:
            side = f"output {position - len(graph.inputs)}" if is_output else f"input {position}"
            return f"{side} of delegate {graph.name} is {value}; the method's %{id} {problem}"
    return None


def _mismatch(given: EValue, value: Tensor | SymInt) -> str | None:
    """Why a method's value does not fit a value of a graph."""
    if isinstance(value, SymInt):
        if isinstance(given, TensorRecord):
            is_one_integer = prod(given.sizes) == 1 and not given.dtype.is_float
            return None if is_one_integer else f"is {describe_record(given)}, not one integer"
        is_integer = given is None or isinstance(given, int)
        return None if is_integer else f"is {describe_record(given)}, not an integer"
    if not isinstance(given, TensorRecord):
        return f"is {describe_record(given)}, not a tensor"
    if given.sizes != value.shape_max or given.dtype.is_float != value.dtype.is_float:
        return f"is {describe_record(given)}"
    return None


def read_by(instruction: Instruction) -> tuple[int, ...]:
    """The values that an instruction reads."""
    match instruction:
        case KernelCall() | DelegateCall():
            return instruction.args
        case MoveCall(source, _):
            return (source,)
        case JumpFalseCall(condition, _):
            return (condition,)
    return ()
