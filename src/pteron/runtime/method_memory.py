"""The tensors of a method outside its delegates: constants, tensors of weight files, states, and tensors that
share the memory of others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import cast

import numpy as np

from pteron.errors import GraphError
from pteron.format.records import (
    DelegateCall,
    EValue,
    IndexList,
    Instruction,
    KernelCall,
    MethodRecord,
    MoveCall,
    ProgramFile,
    TensorRecord,
)
from pteron.format.source import contents
from pteron.graph import Graph
from pteron.host.operator import HostOperator
from pteron.host.values import HostTensor, RuntimeValue, UnsetTensor
from pteron.ops.operand import HostArray
from pteron.plan import Executable
from pteron.runtime.checks import read_by, tensors

Views = dict[int, list[tuple[int, int]]]


def initial_value(value: EValue) -> RuntimeValue:
    """A value at the start of every call, without states."""
    if not isinstance(value, TensorRecord):
        return None if isinstance(value, IndexList) else cast(RuntimeValue, value)
    if value.data is None or value.is_mutable:
        return UnsetTensor(value.dtype)
    return HostTensor(_array(value), value.dtype).protected()


def initial_states(
    record: MethodRecord, operators: Sequence[HostOperator], executables: Sequence[Executable]
) -> dict[int, HostTensor]:
    """Buffers that live across calls, by value id: those with an initial value, and those that an operator
    updates in place before anything else writes them, which start as zeros."""
    updated = _updated_in_place(record, operators, executables)
    states: dict[int, HostTensor] = {}
    for id, value in enumerate(record.values):
        if not isinstance(value, TensorRecord) or value.is_constant or id in record.inputs:
            continue
        if value.is_mutable and value.data is not None:
            states[id] = HostTensor(_array(value).copy(), value.dtype).protected()
        elif id in updated:
            states[id] = HostTensor(np.zeros(value.sizes, value.dtype.numpy), value.dtype).protected()
    return states


def _updated_in_place(
    record: MethodRecord, operators: Sequence[HostOperator], executables: Sequence[Executable]
) -> set[int]:
    updated: set[int] = set()
    written: set[int] = set()
    for instruction in record.instructions:
        if isinstance(instruction, KernelCall):
            pairs = zip(operators[instruction.operator].parameters, instruction.args, strict=False)
            in_place = {id for parameter, id in pairs if parameter.is_written and parameter.is_read}
            updated |= in_place - written
        written.update(written_by(record, instruction, operators, executables))
    return updated


def _array(record: TensorRecord) -> HostArray:
    """A tensor's stored bytes as an array of its logical shape."""
    assert record.data is not None
    stored = tuple(record.sizes[dim] for dim in record.dim_order)
    array = np.frombuffer(contents(record.data), record.dtype.numpy).reshape(stored)
    return array.transpose(np.argsort(record.dim_order)) if record.sizes else array


def with_external_data(
    file: ProgramFile, record: MethodRecord, weights: Mapping[str, memoryview]
) -> MethodRecord:
    """The method with its external tensors, from the weight files."""

    def found(value: EValue) -> EValue:
        if not isinstance(value, TensorRecord) or not value.is_external:
            return value
        assert value.name is not None  # the reader requires it
        where = f"{file.name}, method {record.name}: tensor {value.name!r}"
        data, needed = weights.get(value.name), prod(value.sizes) * value.dtype.itemsize
        if data is None:
            raise GraphError(f"{where} is not in the weight files given (load(..., data=[...]))")
        if len(data) != needed:
            raise GraphError(f"{where} needs {needed} bytes, its weight file has {len(data)}")
        return replace(value, data=data)

    return replace(record, values=tuple(map(found, record.values)))


def views_of_memory(
    record: MethodRecord, operators: Sequence[HostOperator], executables: Sequence[Executable | Graph]
) -> Views:
    """Pairs (tensor that no instruction writes, tensor that it is a view of), by the index of the instruction
    that reads the first. For outputs of the method the index is the number of instructions.

    The exporter drops a reshape if its result has the same memory as its input. Then no instruction writes
    the result: its value is the last tensor written at the same place in the arena, in another shape.
    """
    written = [
        set(written_by(record, instruction, operators, executables)) for instruction in record.instructions
    ]
    stored = {
        id
        for id, value in enumerate(record.values)
        if id in record.inputs or (isinstance(value, TensorRecord) and value.data is not None)
    }
    own = stored.union(*written)
    latest: dict[tuple[int, int], int] = {}  # place -> the last tensor written there
    views: Views = {}
    reads = [
        *(tensors(record, read_by(instruction)) for instruction in record.instructions),
        _results(record),
    ]
    for index, (ids, written_before) in enumerate(zip(reads, [stored, *written], strict=True)):
        for id in written_before:
            value = record.values[id]
            if isinstance(value, TensorRecord) and value.allocation is not None:
                latest[value.allocation] = id
        for id in ids:
            source = _source(record, id, latest) if id not in own else None
            if source is not None:
                views.setdefault(index, []).append((id, source))
    return views


def _results(record: MethodRecord) -> tuple[int, ...]:
    """The values that are read after all instructions."""
    return (*record.outputs, *(new for _, new in record.carried))


def reshaped(array: HostArray, source: TensorRecord, view: TensorRecord) -> HostArray:
    """The elements of one tensor in the shape of another in the same memory."""
    in_memory = array.transpose(source.dim_order) if array.ndim else array
    shaped = in_memory.reshape(tuple(view.sizes[dim] for dim in view.dim_order))
    return shaped.transpose(np.argsort(view.dim_order)) if view.sizes else shaped


def _source(record: MethodRecord, id: int, latest: dict[tuple[int, int], int]) -> int | None:
    view = record.values[id]
    if not isinstance(view, TensorRecord) or view.allocation not in latest:
        return None
    source = record.values[latest[view.allocation]]
    assert isinstance(source, TensorRecord)
    same = view.dtype is source.dtype and prod(view.sizes) == prod(source.sizes)
    return latest[view.allocation] if same and view.dynamism == source.dynamism == "static" else None


def written_by(
    record: MethodRecord,
    instruction: Instruction,
    operators: Sequence[HostOperator],
    executables: Sequence[Executable | Graph],
) -> Iterator[int]:
    """The values that an instruction writes."""
    match instruction:
        case KernelCall(operator, args):
            pairs = zip(operators[operator].parameters, args, strict=False)
            yield from tensors(record, [id for parameter, id in pairs if parameter.is_written])
        case DelegateCall(delegate, args):
            yield from args[len(executables[delegate].inputs) :]
        case MoveCall(_, target):
            yield target
