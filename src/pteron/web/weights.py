"""Weights -> chunks: files that are named by their content, at most CHUNK bytes each.

Weights that the same variants use follow one another in a *stream*, which is cut into chunks. A variant needs
whole streams, so a page fetches nothing that its adapter does not use, and weights that variants share are
stored once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from pteron.ops import Weight
from pteron.plan import Executable, Plan

Json: TypeAlias = Any
CHUNK = 32 << 20  # bytes
_ALIGNMENT = 16  # of a weight in its stream


@dataclass(frozen=True, slots=True)
class Place:
    """Where the bytes of a weight are."""

    stream: int
    offset: int
    length: int


def used_weights(executable: Executable) -> Iterator[Weight]:
    """The weights that launches and outputs read, and first contents of states that are not zeros."""
    plans: list[Plan] = list(executable.all_plans())
    bound = [buffer for plan in plans for launch in plan.launches for buffer in launch.buffers]
    placed = [getattr(port, "buffer", None) for port in executable.outputs]
    yield from dict.fromkeys(each for each in (*bound, *placed) if isinstance(each, Weight))
    for state in executable.states.values():
        if state.initial is not None and state.initial.constant.bytes().any():
            yield state.initial


def write_file(folder: Path, subfolder: str, suffix: str, data: bytes) -> Json:
    """Write a file that is named by its content; what the player must know of it."""
    digest = hashlib.sha256(data).hexdigest()
    name = f"{subfolder}/{digest[:16]}{suffix}"
    (folder / subfolder).mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
    return {"file": name, "bytes": len(data), "sha256": digest}


class _Stream:
    """Bytes that are cut into chunks while they arrive."""

    def __init__(self, folder: Path) -> None:
        self.length = 0
        self.chunks: list[Json] = []
        self._folder = folder
        self._pending = bytearray()

    def add(self, data: np.ndarray[Any, Any]) -> tuple[int, int]:
        """Append an array; its offset and length."""
        self._append(bytes(-self.length % _ALIGNMENT))
        offset = self.length
        self._append(np.ascontiguousarray(data).reshape(-1).view(np.uint8).data)
        return offset, self.length - offset

    def close(self) -> None:
        self._append(bytes(-self.length % 4))  # writes to a GPU are of whole words
        if self._pending:
            self._write(bytes(self._pending))

    def _append(self, data: bytes | memoryview) -> None:
        self.length += len(data)
        self._pending += data
        while len(self._pending) >= CHUNK:
            self._write(bytes(self._pending[:CHUNK]))
            del self._pending[:CHUNK]

    def _write(self, data: bytes) -> None:
        self.chunks.append(write_file(self._folder, "weights", ".bin", data))


def write_weights(
    folder: Path, used: Mapping[str, list[Weight]]
) -> tuple[list[Json], dict[Weight, Place], dict[str, list[int]]]:
    """Write the weights of all variants: the streams with their chunks, the place of each weight, and the
    streams of each variant."""
    users: dict[Weight, list[str]] = {}
    for variant, weights in used.items():
        for weight in weights:
            users.setdefault(weight, []).append(variant)
    groups: dict[tuple[str, ...], list[Weight]] = {}
    for weight, variants in users.items():
        groups.setdefault(tuple(variants), []).append(weight)
    streams: list[Json] = []
    places: dict[Weight, Place] = {}
    needed: dict[str, list[int]] = {name: [] for name in used}
    for index, (names, weights) in enumerate(groups.items()):
        stream = _Stream(folder)
        for weight in weights:
            places[weight] = Place(index, *stream.add(weight.pack()))
        stream.close()
        streams.append({"bytes": stream.length, "chunks": stream.chunks})
        for name in names:
            needed[name].append(index)
    return streams, places, needed
