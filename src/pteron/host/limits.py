"""How much a program may do on the host in one call: no small file hangs it or fills its memory.

What runs on the GPU is bounded by the file's own shapes. Outside the delegates a program has loops, operators
that make tensors of any size, and operators whose work grows faster than their inputs.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from pteron.errors import HostError, InputError

BYTES_MAX = 1 << 31  # of tensors on the host that a call, or a method's states, hold at the same time
WORK_MAX = 1 << 39  # products, or elements that are read and written at 16 each: a minute or so
STEPS_MAX = 1_000_000  # instructions, and items of the lists that they take
SECONDS_MAX = 30  # that a call may be at work and still jump back
INTEGER_BITS = 64  # signed, as programs store them: no limit to be raised


@dataclass(frozen=True, slots=True)
class Limits:
    """What a call may use. Each can be raised by an environment variable, which the errors name."""

    bytes: int = BYTES_MAX
    work: int = WORK_MAX
    steps: int = STEPS_MAX
    seconds: int = SECONDS_MAX

    @classmethod
    def chosen(cls) -> Limits:
        """The limits that the environment asks for."""
        return cls(
            _chosen("BYTES", BYTES_MAX),
            _chosen("WORK", WORK_MAX),
            _chosen("STEPS", STEPS_MAX),
            _chosen("SECONDS", SECONDS_MAX),
        )

    def check_bytes(self, where: str, needed: int) -> None:
        """Refuse so many bytes of tensors."""
        if needed > self.bytes:
            raise _exceeded(f"{where}: {needed:,} bytes of tensors on the host", self.bytes, "BYTES")


class Budget:
    """What one call has used of its limits; `where` names the call, or the instruction, in messages."""

    __slots__ = ("_began", "_held", "_holdings", "_limits", "_steps", "_where", "_work")

    def __init__(self, where: str, limits: Limits) -> None:
        self._where = where
        self._limits = limits
        self._steps = self._work = self._held = 0
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
        """A loop goes on."""
        if time.monotonic() - self._began > self._limits.seconds:
            raise _exceeded(
                f"{self._where}: still looping after many seconds", self._limits.seconds, "SECONDS"
            )

    def spend(self, where: str, work: int, scratch: int = 0) -> None:
        """Count an operator's work before it is done, and the bytes that it needs meanwhile."""
        self._work += work
        if self._work > self._limits.work:
            raise _exceeded(f"{where}: {self._work:,} operations", self._limits.work, "WORK")
        self._limits.check_bytes(where, self._held + scratch)

    def hold(self, where: str, id: int, size: int) -> None:
        """Let a value hold so many bytes, besides what it held before: both are there while one is made."""
        self._limits.check_bytes(where, self._held + size)
        self.free(id)
        self._held += size
        self._holdings[id] = _Holding(size)

    def share(self, source: int, target: int) -> None:
        """Let a value hold what another does: memory is free again when none of them holds it."""
        holding = self._holdings.get(source)
        if holding is not None:
            holding.holders += 1
        self.free(target)
        if holding is not None:
            self._holdings[target] = holding

    def free(self, id: int) -> None:
        """Let a value hold nothing."""
        holding = self._holdings.pop(id, None)
        if holding is not None:
            holding.holders -= 1
            self._held -= 0 if holding.holders else holding.bytes


@dataclass(slots=True)
class _Holding:
    """Memory that values have in common."""

    bytes: int
    holders: int = 1


def check_integer(value: object) -> None:
    """Refuse an integer that no program can store."""
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
