"""The commands of a submission: copies between buffers, and replays of plans."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pteron.gpu.library import FFI, address

BoundLaunch: TypeAlias = tuple[Any, Any, int, int, int]  # pipeline, bind group, grid
_LAUNCH = struct.Struct("QQIIIxxxx")  # `Step` of native/encode.c
_FIRST_PART, _GROWTH = 8, 2  # launches in a replay's first part; each later part has _GROWTH times as many


@dataclass(slots=True)
class Replay:
    """A plan's dispatches over one sequence's states, ready to be submitted."""

    launches: list[BoundLaunch]
    kept: list[Any]  # pipelines, groups, buffers: keep the raw handles in the launches valid
    _buffers: list[Any] | None = field(default=None, init=False, repr=False)
    _packed: Any = field(default=None, init=False, repr=False)
    _address: int = field(default=0, init=False, repr=False)
    _parts: list[Replay] = field(default_factory=list, init=False, repr=False)
    checked_at: object = field(default=None, init=False, repr=False, compare=False)  # by check_buffers

    @property
    def buffers(self) -> list[Any]:
        """The buffers that the launches are bound to."""
        if self._buffers is None:
            self._buffers = [each for each in self.kept if hasattr(each, "_map_state")]
        return self._buffers

    @property
    def packed(self) -> int:
        """The address of the launches as the C library reads them; valid while the replay lives."""
        if self._packed is None:
            packed = (
                _LAUNCH.pack(address(pipeline), address(group), x, y, z)
                for pipeline, group, x, y, z in self.launches
            )
            self._packed = FFI.from_buffer(b"".join(packed))
            self._address = address(self._packed)
        return self._address

    @property
    def parts(self) -> list[Replay]:
        """The replay split into parts. The first is short, so that the GPU starts early."""
        if len(self.launches) <= 2 * _FIRST_PART:
            return [self]
        if not self._parts:
            first, size = 0, _FIRST_PART
            while len(self.launches) - first > 2 * size:
                self._parts.append(Replay(self.launches[first : first + size], self.kept))
                first, size = first + size, size * _GROWTH
            self._parts.append(Replay(self.launches[first:], self.kept))
        return self._parts


@dataclass(slots=True)
class Copy:
    """Bytes to copy between two buffers, rounded up to whole words."""

    source: Any
    target: Any
    size: int
    target_offset: int = 0
    source_offset: int = 0
    checked_at: object = field(default=None, init=False, repr=False, compare=False)  # by check_buffers

    @property
    def buffers(self) -> tuple[Any, Any]:
        return self.source, self.target

    @property
    def whole_words(self) -> int:
        """Bytes that are copied."""
        return -(-self.size // 4) * 4


Command: TypeAlias = Copy | Replay
