"""A target, and the result of one input: an outcome in one word, or a fault."""

from __future__ import annotations

import re
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from types import FrameType
from typing import NoReturn, TypeAlias

from fuzz import SOURCES
from pteron.errors import DeviceError, PteronError

Mutate: TypeAlias = Callable[[bytes, Random, Callable[[], bytes]], bytes]
DEVICE_FAULT = "wrong device"  # how the keys of errors of the device begin
_MESSAGE_MAX = 20_000  # characters: an error is a sentence, whatever the file holds


@dataclass(frozen=True, kw_only=True)
class Target:
    """Code that reads bytes. `run` returns an outcome in one word; any exception other than a PteronError is
    a finding."""

    name: str
    run: Callable[[bytes], str]
    seeds: Callable[[], Iterable[bytes]]  # valid inputs
    mutate: Mutate  # an input, a random generator, a source of other inputs -> a new input
    suffix: str  # of its files
    needs: tuple[str, ...] = ()  # packages
    seconds: float = 2.0  # CPU time limit per input
    megabytes: int = 512  # memory limit, beyond that of the process before
    on_device: bool = False  # whether it opens a device; its memory only counts on software adapters
    share: int = 1  # weight of its time among the targets
    warm: Callable[[], object] = field(default=lambda: None)  # done before memory is counted


@dataclass(frozen=True)
class Fault:
    """A failure. Faults with equal keys are one finding."""

    key: str
    text: str


class TooSlowError(BaseException):
    """An input took more processor time than its target allows."""


class Wrong(Exception):  # noqa: N818  # a finding, not an error of the fuzzer
    """A wrong result; `where` is its key."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(message)
        self.where = where


def wrong_device(error: DeviceError) -> Wrong:
    """An error of the device, which no input should cause; its key is the failed action."""
    doing = re.sub(r"[\d,]+", "N", str(error).partition(":")[0])
    return Wrong(f"device, {doing[:80]}", str(error))


def judge(target: Target, data: bytes) -> str | Fault:
    """Run one input within its time limit."""
    try:
        with time_limit(target.seconds):
            return target.run(data)
    except PteronError as error:
        message = str(error)
        if not message or len(message) > _MESSAGE_MAX:
            what = "too long a message" if message else "no message"
            return Fault(f"{what}: {place(error)}", f"{len(message):,} characters: {message[:400]}")
        return type(error).__name__
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        return Fault(place(error), "".join(traceback.format_exception(error))[-4000:])


def place(error: BaseException) -> str:
    """An error's type and the innermost function of the project that it left."""
    if isinstance(error, Wrong):
        return f"wrong {error.where}"
    found = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if file.startswith(str(SOURCES)):
            found = f" in {file.removeprefix(str(SOURCES) + '/')} {frame.f_code.co_name}"
    return type(error).__name__ + found


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TooSlowError after this much CPU time, and again every second: Python can lose the first one."""

    def stop(_: int, frame: FrameType | None) -> NoReturn:
        raise TooSlowError(f"more than {seconds} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
