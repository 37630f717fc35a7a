"""Checks at load that a method's instructions fit the operators and delegates that they call; kinds of
arguments of host operators are checked at a call. An error is a GraphError that names the instruction.

A delegate takes any shape up to its own maximum, so the method's bounds may be smaller, but not larger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import prod
from operator import gt
from typing import NamedTuple, cast

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
from pteron.graph import Graph, Shape, SymInt, Tensor
from pteron.host.operator import HostOperator


def check_method(
    where: str, record: MethodRecord, operators: Sequence[HostOperator], graphs: Sequence[Graph]
) -> None:
    """Raise a GraphError for the first wrong instruction."""
    for index, instruction in enumerate(record.instructions):
        problem = None
        if isinstance(instruction, KernelCall):
            expected, found = len(operators[instruction.operator].parameters), len(instruction.args)
            if found < expected:
                name = record.operators[instruction.operator]
                problem = f"{name}: expected at least {expected} arguments, found {found}"
        elif isinstance(instruction, DelegateCall):
            problem = _delegate(record, instruction, graphs[instruction.delegate])
        if problem:
            raise GraphError(f"{where}, instruction {index}: {problem}")


def describe_record(value: EValue) -> str:
    """A method's value for error messages."""
    if isinstance(value, TensorRecord):
        return f"a tensor {value.dtype}{list(value.sizes)}"
    return f"a list of {value.kind}" if isinstance(value, IndexList) else repr(value)


def _delegate(record: MethodRecord, call: DelegateCall, graph: Graph) -> str | None:
    border = (*graph.inputs, *graph.outputs)
    if len(call.args) != len(border):
        return (
            f"delegate {graph.name} has {len(graph.inputs)} inputs and {len(graph.outputs)} outputs, but is "
            f"given {len(call.args)} values. Where mutated buffers became outputs of the graph, export with "
            'VulkanPartitioner({"alias_buffer_mutations": True}) (docs/from-executorch.md)'
        )
    for position, (id, value) in enumerate(zip(call.args, border, strict=True)):
        given, is_output = record.values[id], position >= len(graph.inputs)
        problem = _mismatch(given, value)
        if not problem and is_output and isinstance(given, TensorRecord):
            if given.is_constant:
                problem = "is written, but is a constant"
            elif isinstance(value, Tensor) and given.sizes != value.shape_max and not _is_bound(given):
                problem = f"is {describe_record(given)}, and its shape is fixed"
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
    fits = len(given.sizes) == len(value.shape_max) and not any(map(gt, given.sizes, value.shape_max))
    if not fits or given.dtype.is_float != value.dtype.is_float:
        return f"is {describe_record(given)}"
    return None


class LiveSlice(NamedTuple):
    """The values that a slice between two live integers takes."""

    tensor: int
    dim: int
    start: int
    end: int


def live_slices(record: MethodRecord, operators: Sequence[HostOperator]) -> dict[int, LiveSlice]:
    """The host's slices between two live integers, by instruction. Integers made of sizes alone are not."""
    live = {id for id in record.inputs if not isinstance(record.values[id], TensorRecord)}
    found = {}
    for index, call in enumerate(record.instructions):
        if not isinstance(call, KernelCall):
            continue
        name = record.operators[call.operator]
        is_arithmetic = name.startswith("executorch_prim::") and not live.isdisjoint(call.args)
        if is_arithmetic or name == "aten::_local_scalar_dense":
            live.add(call.args[-1])
        names = (parameter.name for parameter in operators[call.operator].parameters)
        given = dict(zip(names, call.args, strict=False))
        if "dim" in given and given.get("start") in live and given.get("end") in live:
            found[index] = LiveSlice(given["self"], given["dim"], given["start"], given["end"])
    return found


def with_bounds_of_delegates(
    record: MethodRecord, operators: Sequence[HostOperator], graphs: Sequence[Graph]
) -> MethodRecord:
    """The method with its delegates' bounds of dynamic tensors, if delegates write all of these and agree.

    Exporters trace a program again after they wrote its delegates, and what PyTorch then concludes from the
    example's sizes restricts the method alone.
    """
    bounds: dict[int, Shape] = {}
    for instruction in record.instructions:
        match instruction:
            case KernelCall(operator, args):
                pairs = zip(operators[operator].parameters, args, strict=False)
                written = tensors(record, (id for parameter, id in pairs if parameter.is_written))
            case MoveCall(_, target):
                written = iter((target,))
            case DelegateCall(delegate, args):
                border = (*graphs[delegate].inputs, *graphs[delegate].outputs)
                for id, value in zip(args, border, strict=True):
                    if (
                        isinstance(value, Tensor)
                        and _is_bound(record.values[id])
                        and bounds.setdefault(id, value.shape_max) != value.shape_max
                    ):
                        return record
                continue
            case _:
                continue
        if any(_is_bound(record.values[id]) for id in written):
            return record
    values = list(record.values)
    for id, sizes in bounds.items():
        values[id] = replace(cast(TensorRecord, values[id]), sizes=sizes)
    return replace(record, values=tuple(values))


def _is_bound(value: EValue) -> bool:
    return isinstance(value, TensorRecord) and value.dynamism == "bound"


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


def tensors(record: MethodRecord, ids: Iterable[int]) -> Iterator[int]:
    """Value ids, with lists replaced by their members."""
    for id in ids:
        value = record.values[id]
        if isinstance(value, IndexList):
            yield from (item for item in value.items if item >= 0)
        else:
            yield id
