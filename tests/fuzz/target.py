"""What a target is, and the judgement of one input: an outcome in a word, or a fault."""

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
    """Something that reads bytes. `run` returns an outcome in a word; what it raises, other than errors of
    the project, is a finding."""

    name: str
    run: Callable[[bytes], str]
    seeds: Callable[[], Iterable[bytes]]  # sound inputs
    mutate: Mutate  # an input, chance and a way to another input -> a new input
    generate: Callable[[Random], bytes] | None = None
    watched: tuple[str, ...]  # patterns of sources whose lines count, within src/pteron
    suffix: str  # of its files
    needs: tuple[str, ...] = ()  # packages
    seconds: float = 2.0  # processor time that an input may take,
    megabytes: int = 512  # and memory, beyond what the process had before
    on_device: bool = False  # whether it opens a device, for whose memory only a software adapter can be held
    share: int = 1  # of the time, beside other targets
    watched_share: float = 1.0  # of executions whose lines are looked at: before Python 3.12 that takes time
    restart_after: int = 100_000  # executions, for what processes gather
    shrink: Callable[[bytes], Iterator[bytes]] | None = None  # simpler inputs, to minimise with
    warm: Callable[[], object] = field(default=lambda: None)  # done before memory is counted


@dataclass(frozen=True)
class Fault:
    """What went wrong. Faults with one key are one finding."""

    key: str
    text: str


class TooSlowError(BaseException):
    """An input took more processor time than its target allows."""


class Wrong(Exception):  # noqa: N818  # not an error of the code that fuzzes
    """What a target found without an exception: `where` tells faults apart, the message says what."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(message)
        self.where = where


def wrong_device(error: DeviceError) -> Wrong:
    """An error of the device that no input should come to, told apart by what was being done."""
    doing = re.sub(r"[\d,]+", "N", str(error).partition(":")[0])
    return Wrong(f"device, {doing[:80]}", str(error))


def judge(target: Target, data: bytes) -> str | Fault:
    """Run one input within its time."""
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
    """Raise TooSlowError after so much processor time of the process, and once more a second later: the first
    may be lost where Python cannot raise."""

    def stop(_: int, frame: FrameType | None) -> NoReturn:
        raise TooSlowError(f"more than {seconds} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
