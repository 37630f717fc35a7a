"""A method's values before its first instruction: constants, tensors of weight files, and states."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, cast

import numpy as np

from pteron.errors import GraphError
from pteron.format.records import (
    DelegateCall,
    EValue,
    IndexList,
    KernelCall,
    MethodRecord,
    MoveCall,
    TensorRecord,
)
from pteron.format.source import contents
from pteron.host.limits import Limits
from pteron.host.values import HostTensor, RuntimeValue, UnsetTensor
from pteron.ops.operand import HostArray
from pteron.plan import Executable
from pteron.runtime.checks import describe_record

if TYPE_CHECKING:
    from pteron.host.operator import HostOperator
from collections.abc import Mapping
from dataclasses import replace

from pteron.format.records import ProgramFile


def initial_value(value: EValue) -> RuntimeValue:
    """A value at the start of every call, without states."""
    if not isinstance(value, TensorRecord):
        return None if isinstance(value, IndexList) else cast(RuntimeValue, value)
    if value.data is None or value.is_mutable:
        return UnsetTensor(value.dtype)
    return HostTensor(_array(value), value.dtype).protected()


def initial_states(
    where: str,
    record: MethodRecord,
    operators: Sequence[HostOperator],
    executables: Sequence[Executable],
    limits: Limits,
) -> dict[int, HostTensor]:
    """Buffers that live across calls, by value id: those with an initial value, and those that an operator
    updates in place before anything else writes them, which start as zeros."""
    updated = _updated_in_place(record, operators, executables)
    states: dict[int, HostTensor] = {}
    held = 0
    for id, value in enumerate(record.values):
        if not isinstance(value, TensorRecord) or value.is_constant or id in record.inputs:
            continue
        if value.is_mutable and value.data is not None:
            states[id] = HostTensor(_array(value).copy(), value.dtype).protected()
        elif id in updated:
            needed, planned = prod(value.sizes) * value.dtype.itemsize, sum(record.buffer_sizes)
            if needed > planned:
                what = f"%{id}, {describe_record(value)}, needs {needed:,} bytes"
                raise GraphError(f"{where}: {what}; the method plans {planned:,} for all its tensors")
            held += needed
            limits.check_bytes(f"{where}, state %{id}", held)
            states[id] = HostTensor(np.zeros(value.sizes, value.dtype.numpy), value.dtype).protected()
    return states


def _updated_in_place(
    record: MethodRecord, operators: Sequence[HostOperator], executables: Sequence[Executable]
) -> set[int]:
    updated: set[int] = set()
    written: set[int] = set()
    for instruction in record.instructions:
        match instruction:
            case KernelCall(operator, args):
                for parameter, id in zip(operators[operator].parameters, args, strict=False):
                    if parameter.is_written and parameter.is_read and id not in written:
                        updated.add(id)
                    elif parameter.is_written:
                        written.add(id)
            case DelegateCall(delegate, args):
                written.update(args[len(executables[delegate].inputs) :])
            case MoveCall(_, target):
                written.add(target)
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
