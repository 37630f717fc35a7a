"""Limits on a call's work and memory on the host, so that a small file cannot hang the host or fill its
memory.

The shapes in the file bound the work on the GPU. Outside the delegates, a program has loops, operators that
make tensors of any size, and operators whose work grows faster than their inputs.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass

from pteron.errors import HostError, InputError

BYTES_MAX = 1 << 31  # of tensors on the host that a call, or the states of a method, hold at one time
WORK_MAX = 1 << 39  # products; an element read or written counts for 16: about a minute
STEPS_MAX = 1_000_000  # instructions, and items of their list arguments
SECONDS_MAX = 30  # after which a call may not jump back
INTEGER_BITS = 64  # signed, as in the file format; no variable raises it


@dataclass(frozen=True, slots=True)
class Limits:
    """What a call may use. An environment variable, named in the error, raises each."""

    bytes: int = BYTES_MAX
    work: int = WORK_MAX
    steps: int = STEPS_MAX
    seconds: int = SECONDS_MAX

    @classmethod
    def chosen(cls) -> Limits:
        """The defaults, or the values of the environment variables."""
        return cls(**{name: _chosen(name.upper(), default) for name, default in asdict(cls()).items()})

    def check_bytes(self, where: str, needed: int) -> None:
        """Raise an error if the tensors need more bytes than the limit."""
        if needed > self.bytes:
            raise _exceeded(f"{where}: {needed:,} bytes of tensors on the host", self.bytes, "BYTES")


class Budget:
    """What one call has used of its limits; `where` names the call or the instruction in messages."""

    __slots__ = ("_began", "_bytes", "_holdings", "_limits", "_steps", "_where", "_work")

    def __init__(self, where: str, limits: Limits) -> None:
        self._where = where
        self._limits = limits
        self._steps = self._work = self._bytes = 0
        self._holdings: dict[int, _Holding] = {}  # by value id
        self._began = time.monotonic()

    def step(self, count: int = 1) -> None:
        """Count an instruction, or items of a list."""
        self._steps += count
        if self._steps > self._limits.steps:
            raise _exceeded(
                f"{self._where}: still running after many instructions", self._limits.steps, "STEPS"
            )

    def jump_back(self) -> None:
        """Check the time at a jump back."""
        if time.monotonic() - self._began > self._limits.seconds:
            raise _exceeded(
                f"{self._where}: still looping after many seconds", self._limits.seconds, "SECONDS"
            )

    def spend(self, where: str, work: int, scratch: int = 0) -> None:
        """Count an operator's work before it runs, and check its temporary memory."""
        self._work += work
        if self._work > self._limits.work:
            raise _exceeded(f"{where}: {self._work:,} operations", self._limits.work, "WORK")
        self._limits.check_bytes(where, self._bytes + scratch)

    def hold(self, where: str, id: int, size: int) -> None:
        """Count the bytes of a value's new tensor, made before its old one is freed."""
        self._limits.check_bytes(where, self._bytes + size)
        self.free(id)
        self._bytes += size
        self._holdings[id] = _Holding(size)

    def share(self, source: int, target: int) -> None:
        """Let a value share the memory of another. The memory is free when no value holds it any more."""
        holding = self._holdings.get(source)
        if holding is not None:
            holding.holders += 1
        self.free(target)
        if holding is not None:
            self._holdings[target] = holding

    def free(self, id: int) -> None:
        """Count a value's memory as free."""
        holding = self._holdings.pop(id, None)
        if holding is not None:
            holding.holders -= 1
            self._bytes -= 0 if holding.holders else holding.bytes


@dataclass(slots=True)
class _Holding:
    """Memory shared by values."""

    bytes: int
    holders: int = 1


def check_integer(value: object) -> None:
    """Raise an error for an integer that a program cannot store."""
    if isinstance(value, int) and not -(1 << (INTEGER_BITS - 1)) <= value < 1 << (INTEGER_BITS - 1):
        raise HostError(f"an integer of more than {INTEGER_BITS} bits")


def _chosen(name: str, default: int) -> int:
    text = os.environ.get(f"PTERON_HOST_{name}")
    if text is None:
        return default
    if not text.isdecimal() or int(text) == 0:
        raise InputError(f"PTERON_HOST_{name} is {text!r}; expected a whole number above 0")
    return int(text)


def _exceeded(what: str, limit: int, name: str) -> HostError:
    return HostError(f"{what}; the limit is {limit:,}, which the variable PTERON_HOST_{name} can raise")
