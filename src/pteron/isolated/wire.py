"""Messages between a program's process and its owner: JSON, then the bytes of the arrays in it.

A message is plain data, so the owner need not trust the process.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from math import prod
from typing import IO, Any

import numpy as np

from pteron.ops.operand import HostArray

_LENGTH = struct.Struct("<Q")
_HEADER_MAX = 1 << 26  # bytes of JSON
_BYTES_MAX = 1 << 34  # of arrays
_RANK_MAX = 64  # of arrays, as in NumPy
_KINDS = "biuf"  # of elements: booleans, integers, floats


class WireError(Exception):
    """Data that is not a valid message."""


def pack(message: Mapping[str, Any]) -> list[memoryview]:
    """A message as bytes, in parts. Any value may be an array."""
    arrays: list[HostArray] = []

    def describe(value: object) -> object:
        if isinstance(value, np.generic):
            return value.item()
        if not isinstance(value, np.ndarray):
            raise WireError(f"a {type(value).__name__} cannot be sent")
        if value.dtype.kind not in _KINDS:
            raise WireError(f"arrays of {value.dtype} cannot be sent")
        arrays.append(np.ascontiguousarray(value))
        return {"array": [value.dtype.str, list(value.shape)]}

    try:
        header = json.dumps(message, default=describe).encode()
    except (ValueError, RecursionError) as error:  # integers with too many digits, recursive lists
        raise WireError(f"cannot be sent: {error}") from None
    size = sum(array.nbytes for array in arrays)
    if len(header) > _HEADER_MAX or size > _BYTES_MAX:
        raise WireError(f"a message of {len(header):,} bytes, and {size:,} of arrays")
    parts = [memoryview(_LENGTH.pack(len(header))), memoryview(header)]
    return [*parts, *(array.reshape(-1).view(np.uint8).data for array in arrays)]


def send(stream: IO[bytes], parts: Iterable[memoryview]) -> None:
    """Write a packed message."""
    for part in parts:
        stream.write(part)
    stream.flush()


def receive(stream: IO[bytes]) -> dict[str, Any] | None:
    """The next message, or None at the end of the stream."""
    start = stream.read(_LENGTH.size)
    if not start:
        return None
    length = int.from_bytes(start, "little")
    header = stream.read(length) if length <= _HEADER_MAX else b""
    if len(header) < length:
        raise WireError(f"a header of {length:,} bytes is too large or incomplete")
    left = _BYTES_MAX

    def read_arrays(value: dict[str, Any]) -> Any:
        """Replace the description of an array by the array. JSON objects come in the order of the text."""
        nonlocal left
        if value.keys() != {"array"}:
            return value
        name, shape = value["array"]
        dtype = np.dtype(name)
        is_shape = len(shape) <= _RANK_MAX and all(type(size) is int and size >= 0 for size in shape)
        if dtype.kind not in _KINDS or not is_shape:
            raise WireError(f"an array of {dtype} and {len(shape)} dims")
        left -= prod(shape) * dtype.itemsize
        if left < 0:
            raise WireError(f"more than {_BYTES_MAX:,} bytes of arrays")
        array = np.empty(shape, dtype)
        unread = array.reshape(-1).view(np.uint8).data
        if stream.readinto(unread) < len(unread):  # type: ignore[attr-defined]
            raise WireError("an array is incomplete")
        return array

    try:
        message = json.loads(header, object_hook=read_arrays)
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        raise WireError(f"a header that cannot be read: {error}") from None
    if not isinstance(message, dict):
        raise WireError("a message that is not a dictionary")
    return message
