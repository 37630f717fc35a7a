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

    def described(value: object) -> object:
        if isinstance(value, np.generic):
            return value.item()
        if not isinstance(value, np.ndarray):
            raise WireError(f"a {type(value).__name__} cannot be sent")
        if value.dtype.kind not in _KINDS:
            raise WireError(f"arrays of {value.dtype} cannot be sent")
        arrays.append(np.ascontiguousarray(value))
        return {"array": [value.dtype.str, list(value.shape)]}

    try:
        header = json.dumps(message, default=described).encode()
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
    if len(start) < _LENGTH.size:
        raise WireError("a message ends within its length")
    (length,) = _LENGTH.unpack(start)
    if length > _HEADER_MAX:
        raise WireError(f"a header of {length:,} bytes")
    header = stream.read(length)
    if len(header) < length:
        raise WireError("a header ends too early")
    try:
        message = json.loads(header)
        if not isinstance(message, dict):
            raise WireError("a message that is not a dictionary")
        found = _arrays_in(message, _Arrays(stream))
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        raise WireError(f"a header that cannot be read: {error}") from None
    assert isinstance(found, dict)
    return found


class _Arrays:
    """The arrays after a header, in order."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._left = _BYTES_MAX

    def next(self, name: str, shape: list[int]) -> HostArray:
        dtype = np.dtype(name)
        is_shape = len(shape) <= _RANK_MAX and all(type(size) is int and size >= 0 for size in shape)
        if dtype.kind not in _KINDS or not is_shape:
            raise WireError(f"an array of {dtype} and {len(shape)} dims")
        self._left -= prod(shape) * dtype.itemsize
        if self._left < 0:
            raise WireError(f"more than {_BYTES_MAX:,} bytes of arrays")
        array = np.empty(shape, dtype)
        unread = array.reshape(-1).view(np.uint8).data
        while unread:
            count = self._stream.readinto(unread)  # type: ignore[attr-defined]
            if not count:
                raise WireError("an array ends too early")
            unread = unread[count:]
        return array


def _arrays_in(value: Any, arrays: _Arrays) -> Any:
    """A value with its arrays read from the stream, in the order of the JSON."""
    if isinstance(value, list):
        return [_arrays_in(each, arrays) for each in value]
    if isinstance(value, dict):
        if value.keys() == {"array"}:
            return arrays.next(*value["array"])
        return {name: _arrays_in(each, arrays) for name, each in value.items()}
    return value
