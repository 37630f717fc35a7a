"""Tensors that share memory: the exporter drops a reshape if its result has the same memory as its input.

No instruction writes such a tensor. Its value is the last tensor written at the same place in the arena, in
another shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod

import numpy as np

from pteron.format.records import DelegateCall, IndexList, KernelCall, MethodRecord, MoveCall, TensorRecord
from pteron.host.operator import HostOperator
from pteron.ops.operand import HostArray
from pteron.plan import Executable
from pteron.runtime.checks import read_by

Views = dict[int, list[tuple[int, int]]]


def shared_memory(
    record: MethodRecord, operators: Sequence[HostOperator], executables: Sequence[Executable]
) -> Views:
    """Pairs (tensor that no instruction writes, tensor that it is a view of), by the index of the instruction
    that reads the first. For outputs of the method the index is the number of instructions."""
    written = [
        set(_written_by(record, instruction, operators, executables)) for instruction in record.instructions
    ]
    stored = {
        id
        for id, value in enumerate(record.values)
        if id in record.inputs or (isinstance(value, TensorRecord) and value.data is not None)
    }
    own = stored.union(*written)
    latest: dict[tuple[int, int], int] = {}  # place -> the last tensor written there
    views: Views = {}
    reads = [*(_tensors(record, read_by(instruction)) for instruction in record.instructions), record.outputs]
    _note(record, stored, latest)
    for index, ids in enumerate(reads):
        for id in ids:
            source = _source(record, id, latest) if id not in own else None
            if source is not None:
                views.setdefault(index, []).append((id, source))
        if index < len(written):
            _note(record, written[index], latest)
    return views


def reshaped(array: HostArray, source: TensorRecord, view: TensorRecord) -> HostArray:
    """The elements of one tensor in the shape of another in the same memory."""
    in_memory = array.transpose(source.dim_order) if array.ndim else array
    shaped = in_memory.reshape(tuple(view.sizes[dim] for dim in view.dim_order))
    return shaped.transpose(np.argsort(view.dim_order)) if view.sizes else shaped


def _note(record: MethodRecord, ids: Iterable[int], latest: dict[tuple[int, int], int]) -> None:
    for id in ids:
        value = record.values[id]
        if isinstance(value, TensorRecord) and value.allocation is not None:
            latest[value.allocation] = id


def _source(record: MethodRecord, id: int, latest: dict[tuple[int, int], int]) -> int | None:
    view = record.values[id]
    if not isinstance(view, TensorRecord) or view.allocation not in latest:
        return None
    source = record.values[latest[view.allocation]]
    assert isinstance(source, TensorRecord)
    same = view.dtype is source.dtype and prod(view.sizes) == prod(source.sizes)
    return latest[view.allocation] if same and view.dynamism == source.dynamism == "static" else None


def _written_by(
    record: MethodRecord,
    instruction: object,
    operators: Sequence[HostOperator],
    executables: Sequence[Executable],
) -> Iterator[int]:
    match instruction:
        case KernelCall(operator, args):
            pairs = zip(operators[operator].parameters, args, strict=False)
            yield from _tensors(record, [id for parameter, id in pairs if parameter.is_written])
        case DelegateCall(delegate, args):
            yield from args[len(executables[delegate].inputs) :]
        case MoveCall(_, target):
            yield target


def _tensors(record: MethodRecord, ids: Iterable[int]) -> Iterator[int]:
    """Value ids, with lists replaced by their members."""
    for id in ids:
        value = record.values[id]
        if isinstance(value, IndexList):
            yield from (item for item in value.items if item >= 0)
        else:
            yield id
