"""A process that answers requests one after the other, each within its time.

It may end at any point, and nothing that it says is believed before it was looked at.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir
from typing import Any, NoReturn, TypeVar

from pteron import errors
from pteron.errors import InputError, IsolatedError, PteronError
from pteron.isolated.wire import WireError, pack, receive, send
from pteron.processes import python_module, started_in

_T = TypeVar("_T")
_NO_MESSAGE = "was answered by what is no message, and was ended"


class Process:
    """A module's process, started in a folder of nobody's. `name` stands for it in messages."""

    def __init__(self, module: str, name: str, seconds: float) -> None:
        self.seconds = seconds
        self._name = name
        self._lock = threading.Lock()
        self._asking: int | None = None  # the thread that waits for a reply
        self._owner = os.getpid()
        self._end: str | None = None  # why there is no process any more
        try:
            self.popen = subprocess.Popen(
                python_module(module),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=_errors(),
                start_new_session=True,  # Ctrl-C is the owner's to deal with
                **started_in(Path(gettempdir())),
            )
        except OSError as error:
            raise IsolatedError(f"{name}: no process could be started ({error})") from error
        self._finalizer = weakref.finalize(self, _end, self.popen, self._owner)

    def ask(self, request: Mapping[str, Any], doing: str, read: Callable[[dict[str, Any]], _T]) -> _T:
        """What `read` makes of the reply to a request. Whatever interrupts this ends the process, since
        nobody would know which reply belongs to which request."""
        if os.getpid() != self._owner:  # whose requests and replies would go the same way
            raise IsolatedError(f"{self._name}: loaded before this process was forked; load it again")
        if self._asking == threading.get_ident():
            raise IsolatedError(
                f"{self._name}: called by what interrupted another call, as a signal's handler"
            )
        try:
            message = pack(request)
        except WireError as error:
            raise InputError(f"{self._name}: {error}") from None
        is_asked = False
        try:
            with self._lock:
                if self._end:
                    raise IsolatedError(f"{self._name}: {self._end}; load it again")
                is_asked = True
                try:
                    self._asking = threading.get_ident()
                    return self._read(self._exchange(message, doing), doing, read)
                finally:
                    self._asking = None
        except PteronError:
            raise
        except BaseException:
            if is_asked:
                self.close(f"{doing} was interrupted")
            raise

    def close(self, why: str) -> None:
        """End the process."""
        self._end = self._end or why
        self._finalizer()

    def _exchange(self, message: list[memoryview], doing: str) -> dict[str, Any]:
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        deadline = _Deadline(self.popen, self.seconds)
        reply = None
        # A stream that somebody else closes meanwhile is a ValueError.
        with deadline, suppress(OSError, ValueError, WireError):
            send(self.popen.stdin, message)
            reply = receive(self.popen.stdout)
        if reply is None:
            self._ended(f"{doing} {deadline.verdict()}")
        return reply

    def _read(self, reply: dict[str, Any], doing: str, read: Callable[[dict[str, Any]], _T]) -> _T:
        if "error" in reply:
            kind = getattr(errors, str(reply["error"]), None)
            if not (isinstance(kind, type) and issubclass(kind, PteronError)):
                kind = PteronError
            raise kind(str(reply.get("message")))
        try:
            return read(reply)
        except (LookupError, TypeError, ValueError):
            self._ended(f"{doing} {_NO_MESSAGE}")

    def _ended(self, why: str) -> NoReturn:
        self.close(why)
        raise IsolatedError(f"{self._name}: {self._end}")


class _Deadline:
    """Ends a process that takes too long."""

    def __init__(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        self._process = process
        self._seconds = seconds
        self._is_over = False
        self._timer = threading.Timer(seconds, self._pass)
        self._timer.daemon = True

    def __enter__(self) -> None:
        try:
            self._timer.start()
        except RuntimeError as error:  # there are as many threads as there may be
            raise IsolatedError(f"no deadline could be set ({error})") from error

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def verdict(self) -> str:
        """How a process ended that does not reply any more."""
        if self._is_over:
            return f"took longer than {self._seconds:g} s and was ended"
        try:
            return how_it_ended(self._process.wait(timeout=1))
        except subprocess.TimeoutExpired:
            return _NO_MESSAGE

    def _pass(self) -> None:
        self._is_over = True
        _kill(self._process)


def how_it_ended(code: int) -> str:
    """What a process did last, by its exit code."""
    if code >= 0:
        return f"ended its process with code {code}"
    try:
        return f"ended its process by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended its process by signal {-code}"


def _errors() -> int | None:
    """Where a process complains: where this one does, or nowhere, lest another of its files becomes that.

    Where this one's was closed, a driver's file may be in its place: those end where a process is started.
    """
    try:
        os.fstat(2)
        is_passed_on = os.name != "posix" or os.get_inheritable(2)
    except OSError:
        is_passed_on = False
    return None if is_passed_on else subprocess.DEVNULL


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process, and those that it started: they would hold its ends of the pipes."""
    if os.name == "posix" and process.returncode is None:  # its number is its own until it was waited for
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    """End a process and wait until it is gone. A forked child leaves it to its parent."""
    if os.getpid() == owner:
        _kill(process)
        process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            # What was left to write has no reader. Whoever reads or writes now, and was interrupted by this
            # very call, does not let go of its stream, and will find its end.
            with suppress(OSError, RuntimeError):
                stream.close()
