"""Methods and named data enter; a `.pte` file leaves, written in one pass.

Named data are streamed: each entry states its size beforehand and yields its bytes when its turn comes, so
that a model never has to be in memory as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import SEEK_END
from math import prod
from struct import Struct
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from pteron.dtypes import SCALAR_TYPES, DType
from pteron.errors import PteronError
from pteron.format.flatbuffer import DOUBLE, INT8, INT32, INT64, UINT8, UINT32, UINT64
from pteron.format.flatbuffer_writer import Field, Scalar, Table, Vector, union, write_flatbuffer
from pteron.format.records import DelegateCall, EValue, Instruction, MethodRecord, TensorRecord

_CODES: dict[DType, int] = {dtype: code for code, dtype in SCALAR_TYPES.items()}
_HEADER = Struct("<4sIQQQ")  # magic, length, sizes of program, start and size of segments
_ALIGNMENT = 128  # of segments, as ExecuTorch's exporter has it
_ARENA_ALIGNMENT = 16
_DYNAMISM = {"static": 0, "bound": 1, "unbound": 2}
_LEAF: dict[str, Any] = {"type": None, "context": None, "children_spec": []}

Bytes: TypeAlias = "bytes | memoryview | np.ndarray[Any, np.dtype[Any]]"


@dataclass(frozen=True, slots=True)
class StreamedData:
    """Data of a known size, made when they are written. Without `blocks` they are zeros."""

    size: int
    blocks: Callable[[], Iterable[Bytes]] | None = None

    def read(self) -> memoryview:
        """All of it, in memory."""
        memory = np.zeros(self.size, np.uint8)
        position = 0
        for block in self.blocks() if self.blocks else ():
            view = _view(block)
            memory.data[position : position + len(view)] = view
            position += len(view)
        _check_size(self.size if self.blocks is None else position, self.size)
        return memory.data.toreadonly()


def write_program(
    file: BinaryIO, methods: Sequence[MethodRecord], named_data: Mapping[str, StreamedData]
) -> None:
    """Write a program. Its methods hold no constants of their own: those of delegates are named data."""
    blobs = [delegate.blob for method in methods for delegate in method.delegates]
    segments = [_blob(blob) for blob in blobs] + list(named_data.values())
    starts, end = _places(segments)
    program = _program(methods, segments, starts, list(named_data), len(blobs))
    flatbuffer = write_flatbuffer(program, b"ET12", reserved=_HEADER.size)
    base = _aligned(len(flatbuffer))
    _HEADER.pack_into(flatbuffer, 8, b"eh00", _HEADER.size, len(flatbuffer), base, end)
    file.write(flatbuffer)
    for start, segment in zip(starts, segments, strict=True):
        _write_segment(file, base + start, segment)
    if segments and file.seek(0, SEEK_END) < base + end:  # zeros or nothing at the end
        file.seek(base + end - 1)
        file.write(b"\0")


def _write_segment(file: BinaryIO, position: int, segment: StreamedData) -> None:
    file.seek(position)
    if segment.blocks is None:
        return  # bytes that are never written are zero
    written = 0
    for block in segment.blocks():
        view = _view(block)
        file.write(view)
        written += len(view)
    _check_size(written, segment.size)


def _view(block: Bytes) -> memoryview:
    view = np.ascontiguousarray(block).data if isinstance(block, np.ndarray) else memoryview(block)
    return view.cast("B")


def _check_size(found: int, announced: int) -> None:
    if found != announced:
        raise PteronError(f"a segment has {found} bytes, but {announced} were announced")


def _blob(blob: memoryview) -> StreamedData:
    return StreamedData(len(blob), lambda: [blob])


def _places(segments: Sequence[StreamedData]) -> tuple[list[int], int]:
    """Where each segment begins, and where the last ends."""
    starts, end = [], 0
    for segment in segments:
        starts.append(_aligned(end))
        end = starts[-1] + segment.size
    return starts, end


def _program(
    methods: Sequence[MethodRecord],
    segments: Sequence[StreamedData],
    starts: Sequence[int],
    keys: Sequence[str],
    blobs: int,
) -> Table:
    """The program's table; segments are first the `blobs` of delegates, then the data of `keys`."""
    plans, used = [], 0
    for method in methods:
        plans.append(_plan(method, used))
        used += len(method.delegates)
    return {
        0: Scalar(UINT32, 0),
        1: plans,
        2: [],
        3: [],
        4: [
            {0: Scalar(UINT64, start), 1: Scalar(UINT64, segment.size)}
            for start, segment in zip(starts, segments, strict=True)
        ],
        5: {1: Vector(UINT64, [0])},  # no constants: one placeholder
        6: [],
        7: [{0: key, 1: Scalar(UINT32, blobs + index)} for index, key in enumerate(keys)],
    }


def _plan(method: MethodRecord, first_blob: int) -> Table:
    if method.operators:
        raise ValueError(f"{method.name}: host operators cannot be written")
    outputs: Any = _LEAF
    if len(method.outputs) != 1:
        outputs = {"type": "builtins.list", "context": "null", "children_spec": [_LEAF] * len(method.outputs)}
    return {
        0: method.name,
        1: {0: method.input_tree, 1: json.dumps([1, outputs])},
        2: [_value(value) for value in method.values],
        3: Vector(INT32, method.inputs),
        4: Vector(INT32, method.outputs),
        5: [{0: Vector(INT32, ()), 1: Vector(INT32, ()), 2: list(map(_instruction, method.instructions))}],
        6: [],
        7: [
            {0: delegate.backend, 1: {0: Scalar(INT8, 1), 1: Scalar(UINT32, first_blob + index)}, 2: []}
            for index, delegate in enumerate(method.delegates)
        ],
        8: Vector(INT64, _arena_sizes(method.values)),
    }


def _instruction(instruction: Instruction) -> Table:
    if not isinstance(instruction, DelegateCall):
        raise ValueError("only calls of delegates can be written")
    return union(0, 2, {0: Scalar(INT32, instruction.delegate), 1: Vector(INT32, instruction.args)})


def _arena_sizes(values: Sequence[EValue]) -> list[int]:
    """The bytes of each arena; the first is a placeholder."""
    sizes = [0]
    for value in values:
        if isinstance(value, TensorRecord) and value.allocation is not None:
            arena, offset = value.allocation
            sizes += [0] * (arena + 1 - len(sizes))
            end = _aligned(offset + prod(value.sizes) * value.dtype.itemsize, _ARENA_ALIGNMENT)
            sizes[arena] = max(sizes[arena], end)
    return sizes


def _value(value: EValue) -> Table:
    match value:
        case None:
            return union(0, 1, {})
        case bool():
            return union(0, 3, {0: Scalar(UINT8, value)})
        case int():
            return union(0, 2, {0: Scalar(INT64, value)})
        case float():
            return union(0, 4, {0: Scalar(DOUBLE, value)})
        case str():
            return union(0, 6, {0: value})
        case TensorRecord() if value.data is None and not value.is_external:
            return union(0, 5, _tensor(value))
    raise ValueError(f"a value of type {type(value).__name__} cannot be written")


def _tensor(tensor: TensorRecord) -> Table:
    fields: dict[int, Field] = {
        0: Scalar(INT8, _CODES[tensor.dtype]),
        2: Vector(INT32, tensor.sizes),
        3: Vector(UINT8, tensor.dim_order),
        8: Scalar(INT8, _DYNAMISM[tensor.dynamism]),
    }
    if tensor.allocation is not None:
        arena, offset = tensor.allocation
        fields[6] = {
            0: Scalar(UINT32, arena),
            1: Scalar(UINT32, offset & 0xFFFFFFFF),
            2: Scalar(UINT32, offset >> 32),
        }
    return fields


def _aligned(size: int, to: int = _ALIGNMENT) -> int:
    return -(-size // to) * to
