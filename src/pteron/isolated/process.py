"""A process that answers requests one after the other, each within a time limit.

The process may end at any point, and its replies are checked before use.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir
from typing import Any, NoReturn, TypeVar

from pteron import errors
from pteron.errors import InputError, IsolatedError, PteronError
from pteron.isolated.wire import WireError, pack, receive, send
from pteron.processes import python_module, started_in
from pteron.system import new_process_group

_T = TypeVar("_T")
_NO_MESSAGE = "got an invalid reply and was ended"
_MARK = "PTERON_ISOLATED"  # in the environment of a command's own process


class Process:
    """The process of a Python module, started in the folder for temporary files; messages call it `name`."""

    def __init__(self, module: str, name: str, seconds: float) -> None:
        self.seconds = seconds
        self._name = name
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._end: str | None = None  # why the process ended
        try:
            self.popen = subprocess.Popen(
                python_module(module),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                **new_process_group(),  # Ctrl-C only reaches the owner
                **started_in(Path(gettempdir())),
            )
        except OSError as error:
            raise IsolatedError(f"{name}: cannot start a process ({error})") from error
        self._finalizer = weakref.finalize(self, _end, self.popen, self._owner)

    def ask(self, request: Mapping[str, Any], doing: str, read: Callable[[dict[str, Any]], _T]) -> _T:
        """Send a request and return the reply, converted by `read`. An interrupt ends the process, because
        its late reply would be taken for the reply to the next request."""
        if os.getpid() != self._owner:  # it shares the pipes
            raise IsolatedError(f"{self._name}: loaded before this process was forked; load it again")
        try:
            message = pack(request)
        except WireError as error:
            raise InputError(f"{self._name}: {error}") from None
        with self._lock:
            if self._end:
                raise IsolatedError(f"{self._name}: {self._end}; load it again")
            try:
                return self._exchange(message, doing, read)
            except PteronError:
                raise
            except BaseException:
                self.close(f"{doing} was interrupted")
                raise

    def close(self, why: str) -> None:
        """End the process."""
        self._end = self._end or why
        self._finalizer()

    def _exchange(self, message: list[memoryview], doing: str, read: Callable[[dict[str, Any]], _T]) -> _T:
        """Send a message and read the reply; a timer ends a process that takes too long."""
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        is_late = threading.Event()

        def expire() -> None:
            is_late.set()
            _kill(self.popen)

        timer = threading.Timer(self.seconds, expire)
        timer.daemon = True
        timer.start()
        reply = None
        try:
            # A stream that another thread closes raises ValueError.
            with suppress(OSError, ValueError, WireError):
                send(self.popen.stdin, message)
                reply = receive(self.popen.stdout)
        finally:
            timer.cancel()
        if reply is None:
            late = f"took longer than {self.seconds:g} s and was ended"
            self._ended(f"{doing} {late if is_late.is_set() else self._exit_status()}")
        if "error" in reply:
            kind = getattr(errors, str(reply["error"]), None)
            if not (isinstance(kind, type) and issubclass(kind, PteronError)):
                kind = PteronError
            raise kind(str(reply.get("message")))
        try:
            return read(reply)
        except (LookupError, TypeError, ValueError):
            self._ended(f"{doing} {_NO_MESSAGE}")

    def _exit_status(self) -> str:
        """How a process ended that did not reply."""
        try:
            return exit_status(self.popen.wait(timeout=1))
        except subprocess.TimeoutExpired:
            return _NO_MESSAGE

    def _ended(self, why: str) -> NoReturn:
        self.close(why)
        raise IsolatedError(f"{self._name}: {self._end}")


def exit_status(code: int) -> str:
    """How a process ended, by its exit code."""
    if code >= 0:
        return f"ended its process with code {code}"
    try:
        return f"ended its process by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended its process by signal {-code}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its children, which hold the pipes open."""
    if hasattr(os, "killpg") and process.returncode is None:  # its pid is not reused before `wait`
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    """Kill a process and wait for it, unless this is a forked child of the owner."""
    if os.getpid() == owner:
        _kill(process)
        process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            # No process reads unwritten data any more. A call on this thread that a signal handler
            # interrupted may still use the stream; it then finds the stream closed.
            with suppress(OSError, RuntimeError):
                stream.close()


def is_isolated() -> bool:
    """Whether this process was started by `run_isolated`."""
    return _MARK in os.environ


def run_isolated(name: str, given: Sequence[str], seconds: float) -> int:
    """Run `pteron` with the arguments given; its exit code."""
    start = started_in(Path.cwd())  # relative paths stay valid
    start["env"][_MARK] = "1"
    try:
        # In its own process group: Ctrl-C reaches this process, which ends the other.
        code = subprocess.run(
            python_module("pteron", *given), timeout=seconds, check=False, **new_process_group(), **start
        ).returncode
    except subprocess.TimeoutExpired:
        raise IsolatedError(f"{name}: took longer than {seconds:g} s and was ended") from None
    if code < 0:
        raise IsolatedError(f"{name}: {exit_status(code)}")
    return code
