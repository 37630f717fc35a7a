"""The bytes of a `.pte` file enter; its records leave.

A program is a flatbuffer, usually followed by segments of data. An extended header, placed
after the flatbuffer's first 8 bytes, says where the flatbuffer ends and the segments begin.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from struct import Struct
from typing import Any

from pteron.errors import FormatError, UnsupportedError
from pteron.format.flatbuffer import UINT32, open_root
from pteron.format.foreign import HEAD_BYTES, describe_foreign
from pteron.format.method import read_method
from pteron.format.records import MethodRecord, PortRecord, ProgramFile, TensorRecord
from pteron.format.source import FileBytes, Source, contents, open_bytes
from pteron.format.stored import read_named_data, read_segments, read_stored_data

METADATA_KEY = "pteron.json"  # of named data
COMPILED_METHOD = "forward"  # that `pteron.compile` writes, with metadata
_MULTIPLE = re.compile(r"(?:([1-9]\d*)\*)?([A-Za-z_]\w*)(?: [+-] \d+)?")  # of a symbol, plus a number
STATE_KEY = "pteron.state.{}"  # of the first value of a buffer that a program writes, unless all bytes are 0
_HEADER_AT = 8
_HEADER = Struct("<4sIQQ")
_HEADER_MAGIC = b"eh00"
# Headers this long also hold the size of all segments together.
_LENGTH_WITH_SEGMENT_SIZE = 32
_SEGMENT_SIZE = Struct("<Q")


def read_program(source: Source, name: str | None = None) -> ProgramFile:
    """Read a program; `name` is used in messages (by default, its path)."""
    file = open_bytes(source, name)
    foreign = describe_foreign(bytes(contents(file.view[:HEAD_BYTES])), file.name)
    if foreign:
        raise UnsupportedError(f"{file.name}: {foreign}")
    flatbuffer, segment_area = _split(file)
    program = open_root(flatbuffer, file.name, b"ET12", "Program")
    segments = read_segments(program.tables(4, "segments"), segment_area)
    stored = read_stored_data(program, segments)
    plans = program.tables(1, "execution_plan")
    names: set[str] = set()
    for plan in plans:
        method = plan.text(0, "name")
        if method in names:
            raise plan.error("name", f"two methods are called {method!r}")
        names.add(method)
    named_data = read_named_data(program.tables(7, "named_data"), segments)
    metadata = _metadata(file.name, named_data.pop(METADATA_KEY, None))
    methods = tuple(read_method(plan, stored) for plan in plans)
    if "inputs" in metadata:
        methods = tuple(_with_ports(file.name, method, metadata) for method in methods)
    return ProgramFile(
        name=file.name,
        version=program.integer(0, "version", UINT32),
        methods=methods,
        metadata=metadata,
        named_data=named_data,
        size=len(file.view),
    )


def _metadata(name: str, text: memoryview | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        found = json.loads(bytes(contents(text)))
    except ValueError as error:
        raise FormatError(f"{name}: {METADATA_KEY} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise FormatError(f"{name}: {METADATA_KEY} is not a JSON object")
    return found


def _with_ports(file: str, method: MethodRecord, metadata: Mapping[str, Any]) -> MethodRecord:
    """The method with the names and least sizes of its inputs and outputs. A module's written buffers come
    first on both sides; outputs continue with the new values of written inputs."""
    if method.name != COMPILED_METHOD:
        return method
    try:
        states = [PortRecord(f"state.{name}") for name in metadata["states"]]
        inputs = list(map(_port, metadata["inputs"]))
        written = [inputs[position] for position in metadata["written"]]
        outputs = [*states, *written, *map(_port, metadata["outputs"])]
    except (LookupError, TypeError, ValueError) as error:
        raise FormatError(f"{file}: the inputs in {METADATA_KEY} are invalid: {error}") from error
    inputs = [*states, *inputs]
    _check_ports(f"{file}: inputs in {METADATA_KEY}", method, method.inputs, inputs)
    _check_ports(f"{file}: outputs in {METADATA_KEY}", method, method.outputs, outputs)
    return replace(method, input_ports=tuple(inputs), output_ports=tuple(outputs))


def _port(described: Mapping[str, Any]) -> PortRecord:
    name, least = str(described["name"]), described.get("min")
    if least is None:
        return PortRecord(name)
    dims = tuple(map(_step, described.get("dims", ()))) or ((1, ""),) * len(least)
    steps, symbols = zip(*dims, strict=True) if dims else ((), ())
    return PortRecord(name, tuple(int(size) for size in least), steps, symbols)


def _step(dim: int | str) -> tuple[int, str]:
    """The step and the symbol of a dim, stored as a number, `n`, `16*n` or `16*n + 1`. Another expression is
    taken for a symbol of its own."""
    found = _MULTIPLE.fullmatch(dim) if isinstance(dim, str) else None
    return (int(found[1] or 1), found[2]) if found else (1, "" if isinstance(dim, int) else str(dim))


def _check_ports(where: str, method: MethodRecord, ids: Sequence[int], ports: Sequence[PortRecord]) -> None:
    if len(ports) != len(ids):
        raise FormatError(f"{where}: {len(ports)} for {len(ids)} of the method")
    for id, port in zip(ids, ports, strict=True):
        value = method.values[id]
        sizes = value.sizes if isinstance(value, TensorRecord) else ()
        least = sizes if port.shape_min is None else port.shape_min
        if len(least) != len(sizes) or not all(0 <= a <= b for a, b in zip(least, sizes, strict=True)):
            raise FormatError(f"{where}: {port.name} is at least {list(least)} and at most {list(sizes)}")
        if isinstance(value, TensorRecord) and port.shape_step and len(port.shape_step) != len(sizes):
            raise FormatError(f"{where}: {port.name} has {len(port.shape_step)} dims, expected {len(sizes)}")


def _split(file: FileBytes) -> tuple[memoryview, memoryview]:
    """The flatbuffer and the area of segments behind it, which may be empty."""
    view = file.view
    head = contents(view[: _HEADER_AT + _LENGTH_WITH_SEGMENT_SIZE])
    if head[_HEADER_AT : _HEADER_AT + 4] != _HEADER_MAGIC:
        return view, memoryview(b"")
    if len(head) < _HEADER_AT + _HEADER.size:
        raise FormatError(f"{file.name}: the file ends inside its header")
    _, length, program_size, segments_at = _HEADER.unpack_from(head, _HEADER_AT)
    segments_size = 0
    if length >= _LENGTH_WITH_SEGMENT_SIZE and len(head) == _HEADER_AT + _LENGTH_WITH_SEGMENT_SIZE:
        (segments_size,) = _SEGMENT_SIZE.unpack_from(head, _HEADER_AT + _HEADER.size)
    if length < _HEADER.size or not _HEADER_AT + length <= program_size <= len(view):
        raise FormatError(
            f"{file.name}: the header, of {length} bytes, claims a program of {program_size} bytes"
            f" in a file of {len(view)}"
        )
    if segments_at == 0:
        return view[:program_size], memoryview(b"")
    if segments_at < program_size or segments_at + segments_size > len(view):
        raise FormatError(
            f"{file.name}: the header claims {segments_size} bytes of segments at byte {segments_at}"
            f" in a file of {len(view)}; the file may be truncated"
        )
    return view[:program_size], view[segments_at:]
