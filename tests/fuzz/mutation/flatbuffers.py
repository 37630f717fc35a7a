"""Mutations of flatbuffer fields. The project's own reader finds them: every read of a valid file is recorded
with its name, position and size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any

import numpy as np

from fuzz.mutation.havoc import edge, havoc
from fuzz.target import Mutate
from pteron.errors import PteronError
from pteron.format.flatbuffer import Buffer, Table

_ITEMS = 32  # of a vector whose places are noted


@dataclass(frozen=True)
class Field:
    """A number in a file: a scalar, a vector's length or item, or an offset."""

    name: str
    at: int
    size: int
    is_offset: bool = False


def field_mutation(parse: Callable[[bytes], object], header: Sequence[tuple[int, int]] = ()) -> Mutate:
    """A mutation of what `parse` reads, through any number of flatbuffers inside one another, and of the
    numbers of a header: (position, bytes) of each."""
    fixed = [Field(f"header {at}", at, size) for at, size in header]

    @lru_cache(maxsize=512)
    def fields_of(data: bytes) -> list[Field]:
        fields = [*fixed, *_fields(data, parse)]
        return [field for field in fields if 0 <= field.at <= len(data) - field.size]

    def mutate(data: bytes, random: Random, other: Callable[[], bytes]) -> bytes:
        fields = fields_of(data)
        if not fields or random.random() < 0.1:
            return havoc(data, random, other)
        by_name: dict[str, list[Field]] = defaultdict(list)
        for field in fields:
            by_name[field.name].append(field)
        # A name first: a hundred nodes' arguments are not a hundred times as interesting as the header.
        name = random.choice(list(by_name))
        field = random.choice(by_name[name])
        copy = bytearray(data)
        alike = [
            mate for mate in by_name[name] if (mate.size, mate.is_offset) == (field.size, field.is_offset)
        ]
        value = _new_value(data, field, random.choice(alike), random)
        copy[field.at : field.at + field.size] = value.to_bytes(field.size, "little")
        return bytes(copy)

    return mutate


def _new_value(data: bytes, field: Field, mate: Field, random: Random) -> int:
    whole = 1 << (8 * field.size)
    here = int.from_bytes(data[field.at : field.at + field.size], "little")
    there = int.from_bytes(data[mate.at : mate.at + mate.size], "little")
    if field.is_offset:  # to where another of its kind leads, mostly
        return ((mate.at + there - field.at) if random.random() < 0.8 else edge(random, 4)) % whole
    return random.choice(
        (there, there, (here + random.choice((-2, -1, 1, 2))) % whole, edge(random, field.size))
    )


def _fields(data: bytes, parse: Callable[[bytes], object]) -> Iterator[Field]:
    noted: dict[tuple[int, int], Field] = {}
    base = _address(memoryview(data))

    def note(view: memoryview, name: str, at: int, size: int, is_offset: bool) -> None:
        start = _address(view) - base + at
        if (start, size) not in noted or is_offset:
            noted[start, size] = Field(name, start, size, is_offset)

    # What was read until an error counts.
    foreign = (RecursionError, ArithmeticError, LookupError, TypeError, ValueError)
    with _noting(note), suppress(PteronError, *foreign):
        parse(data)
    yield from noted.values()


def _address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data) if len(view) else 0


@contextmanager
def _noting(note: Callable[[memoryview, str, int, int, bool], None]) -> Iterator[None]:
    field, vector, follow = Table._field, Table._vector, Buffer.follow

    def noting_field(table: Table, slot: int, name: str, size: int) -> int | None:
        position = field(table, slot, name, size)
        if position is not None:
            note(table._buffer.view, name, position, size, False)
        return position

    def noting_vector(table: Table, slot: int, name: str, item_size: int) -> tuple[int, int]:
        start, count = vector(table, slot, name, item_size)
        if start:
            note(table._buffer.view, f"{name} count", start - 4, 4, False)
            for index in range(min(count, _ITEMS)):
                note(table._buffer.view, f"{name} item", start + index * item_size, item_size, False)
        return start, count

    def noting_follow(buffer: Buffer, path: str, position: int) -> int:
        target = follow(buffer, path, position)
        name = path.rpartition(".")[2].partition("[")[0]
        note(buffer.view, f"{name} offset", position, 4, True)
        return target

    patched: dict[str, Any] = {"_field": noting_field, "_vector": noting_vector}
    for name, function in patched.items():
        setattr(Table, name, function)
    Buffer.follow = noting_follow  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        Table._field, Table._vector = field, vector  # type: ignore[method-assign]
        Buffer.follow = follow  # type: ignore[method-assign]
