"""A .safetensors file enters; its tensors leave, mapped: bytes are read when a tensor's rows are.

The file is the length of a JSON header, the header, then the bytes of all tensors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.errors import FormatError, UnsupportedError
from pteron.format.foreign import HEAD_BYTES, describe_placeholder
from pteron.format.source import contents, open_bytes
from pteron.format.stored_tensor import Array, StoredTensor

_LENGTH = Struct("<Q")
_HEADER_MAX = 1 << 27


def bf16_to_f32(bits: npt.NDArray[Any]) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _as_f32(values: npt.NDArray[Any]) -> Array:
    return values.astype(np.float32, copy=False)


# Element type -> how it is stored, and how it becomes float32.
_TYPES: Mapping[str, tuple[np.dtype[Any], Callable[[npt.NDArray[Any]], Array]]] = {
    "F64": (np.dtype("<f8"), _as_f32),
    "F32": (np.dtype("<f4"), _as_f32),
    "F16": (np.dtype("<f2"), _as_f32),
    "BF16": (np.dtype("<u2"), bf16_to_f32),
    "U8": (np.dtype("u1"), _as_f32),
    "BOOL": (np.dtype("u1"), _as_f32),  # masks, which families leave out
}


class BytesTensor(StoredTensor):
    """A tensor of bytes: numbers of fewer bits, which the format does not describe."""


def read_safetensors(path: Path) -> dict[str, StoredTensor]:
    file = open_bytes(path)
    placeholder = describe_placeholder(bytes(contents(file.view[:HEAD_BYTES])))
    if placeholder:
        raise FormatError(f"{path.name} is {placeholder}")
    try:
        (length,) = _LENGTH.unpack_from(contents(file.view[: _LENGTH.size]))
        data = file.view[_LENGTH.size + length :]
        if length > _HEADER_MAX or _LENGTH.size + length > len(file.view):
            raise ValueError(f"a header of {length} bytes")
        header: dict[str, Any] = json.loads(bytes(contents(file.view[_LENGTH.size : _LENGTH.size + length])))
        header.pop("__metadata__", None)
        return {name: _tensor(name, entry, data) for name, entry in header.items()}
    except UnsupportedError as error:
        raise UnsupportedError(f"{path.name}: {error}") from None
    except Exception as error:  # a header can have anything where something else is expected
        raise FormatError(f"{path.name} is damaged: {error}") from error


def _tensor(name: str, entry: dict[str, Any], data: memoryview) -> StoredTensor:
    if entry["dtype"] not in _TYPES:
        known = ", ".join(_TYPES)
        raise UnsupportedError(f"tensor {name} has element type {entry['dtype']}; known are {known}")
    shape = tuple(int(size) for size in entry["shape"])
    start, end = entry["data_offsets"]
    if not 0 <= start <= end <= len(data) or end - start != prod(shape) * _TYPES[entry["dtype"]][0].itemsize:
        raise ValueError(f"tensor {name} of {shape} at bytes {start} to {end} of {len(data)}")
    return stored_tensor(data[start:end], shape, entry["dtype"])


def stored_tensor(view: memoryview, shape: tuple[int, ...], kind: str) -> StoredTensor:
    """A tensor in a mapped file, of an element type as safetensors names it."""
    stored, convert = _TYPES[kind]
    row_bytes = prod(shape[1:]) * stored.itemsize

    def read_rows(first: int, last: int) -> Array:
        part = contents(view[first * row_bytes : last * row_bytes] if shape else view)
        return convert(np.frombuffer(part, stored)).reshape(-1, *shape[1:])

    return (BytesTensor if kind == "U8" else StoredTensor)(shape, read_rows)
