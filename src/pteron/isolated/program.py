"""A program in a process of its own: what goes wrong there ends that process, and an error says so here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir
from types import TracebackType
from typing import Any

import numpy as np

from pteron import errors
from pteron.dtypes import DType
from pteron.errors import InputError, IsolatedError, MethodError, PteronError
from pteron.isolated.wire import WireError, receive, send
from pteron.processes import ISOLATED_SECONDS, python_module, started_in
from pteron.runtime.program import Source
from pteron.runtime.specs import ValueSpec

WORKER = "pteron.isolated.worker"


def load_isolated(
    source: Source,
    data: Iterable[Source] | Source = (),
    device: str | None = None,
    *,
    seconds: float = ISOLATED_SECONDS,
    memory: int | None = None,
) -> IsolatedProgram:
    """Open a program that is not trusted, in a process of its own: `pteron.load`, but a crash, an endless
    call or too much memory is an IsolatedError, after which the program is to be loaded again.

    Loading and each call may take so many seconds. `memory` bounds the bytes that the process may write to,
    on Linux; what its GPU holds is not counted, what libraries reserve is (PyTorch a gigabyte on ARM, once a
    program needs it). It is no sandbox: the process may do what its user may.
    """
    return IsolatedProgram(source, data, device, seconds, memory)


class IsolatedProgram:
    """Methods by name: `program["forward"](x)`. A context manager: leaving it ends the process."""

    def __init__(
        self,
        source: Source,
        data: Iterable[Source] | Source,
        device: str | None,
        seconds: float,
        memory: int | None,
    ) -> None:
        if memory is not None and not sys.platform.startswith("linux"):
            raise InputError("the memory of an isolated program can be bounded on Linux alone")
        self._seconds = seconds
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._end: str | None = None  # why there is no process any more
        self._name = str(source) if isinstance(source, (str, os.PathLike)) else "a program given as bytes"
        self._process = subprocess.Popen(
            python_module(WORKER),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is the owner's to deal with
            **started_in(Path(gettempdir())),
        )
        self._finalizer = weakref.finalize(self, _end, self._process)
        sources = [data] if isinstance(data, (str, os.PathLike, bytes, bytearray, memoryview)) else data
        request = {"source": _sent(source), "data": [_sent(each) for each in sources], "device": device}
        try:
            loaded = self._ask({**request, "memory": memory}, "loading it")
        except BaseException:
            self.close()
            raise
        self.methods = tuple(loaded["methods"])

    def __repr__(self) -> str:
        return f"<pteron.IsolatedProgram {self._name}: {', '.join(self.methods)}>"

    def __getitem__(self, name: str) -> IsolatedMethod:
        if name not in self.methods:
            raise MethodError(f"{self._name} has no method {name!r}; it has {', '.join(self.methods)}")
        return IsolatedMethod(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.methods)

    def __len__(self) -> int:
        return len(self.methods)

    def __contains__(self, name: object) -> bool:
        return name in self.methods

    def close(self) -> None:
        """End the process."""
        self._end = self._end or "the program is closed"
        self._finalizer()

    def __enter__(self) -> IsolatedProgram:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, request: dict[str, Any], doing: str) -> dict[str, Any]:
        """The reply to a request. Whatever interrupts it ends the process, since nobody would know which
        reply belongs to which request."""
        if os.getpid() != self._owner:  # whose requests and replies would go the same way
            raise IsolatedError(f"{self._name}: loaded before this process was forked; load it again")
        with self._lock:
            if self._end:
                raise IsolatedError(f"{self._name}: {self._end}; load it again")
            deadline = _Deadline(self._process, self._seconds)
            try:
                with deadline:
                    reply = self._exchange(request)
            except BaseException:
                self._end = f"{doing} was interrupted"
                self._finalizer()
                raise
            if reply is None:
                self._end = f"{doing} {deadline.verdict()}"
                self._finalizer()
                raise IsolatedError(f"{self._name}: {self._end}")
        if "error" in reply:
            kind = getattr(errors, str(reply["error"]), None)
            if not (isinstance(kind, type) and issubclass(kind, PteronError)):
                kind = PteronError
            raise kind(str(reply["message"]))
        return reply

    def _exchange(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """A reply, or None where there is no process to give it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            send(self._process.stdin, request)
            return receive(self._process.stdout)
        except (OSError, WireError):
            return None


class _Deadline:
    """Ends a process that takes too long."""

    def __init__(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        self._process = process
        self._seconds = seconds
        self._is_over = False
        self._timer = threading.Timer(seconds, self._pass)

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def verdict(self) -> str:
        """How a process ended that does not reply any more."""
        if self._is_over:
            return f"took longer than {self._seconds:g} s and was ended"
        try:
            return how_it_ended(self._process.wait(timeout=1))
        except subprocess.TimeoutExpired:
            return "was answered by what is no message, and was ended"

    def _pass(self) -> None:
        self._is_over = True
        self._process.kill()


class IsolatedMethod:
    """`method(*inputs)` runs it, with NumPy arrays and scalars in and out."""

    def __init__(self, program: IsolatedProgram, name: str) -> None:
        self._program = program
        self.name = name

    @property
    def inputs(self) -> tuple[ValueSpec, ...]:
        """What the method takes: element types, maximum shapes, which dims are dynamic."""
        return self._specs("inputs")

    @property
    def outputs(self) -> tuple[ValueSpec, ...]:
        """What the method gives."""
        return self._specs("outputs")

    def __call__(self, *inputs: object) -> tuple[Any, ...]:
        """Run the method; the outputs are a tuple, whatever their number."""
        reply = self._ask("call", list(map(_input, inputs)))
        return tuple(reply["outputs"])

    def reset(self) -> None:
        """Bring caches and mutated buffers back to their initial values."""
        self._ask("reset")

    def _specs(self, kind: str) -> tuple[ValueSpec, ...]:
        return tuple(_spec(**each) for each in self._ask("describe")[kind])

    def _ask(self, act: str, inputs: list[Any] | None = None) -> dict[str, Any]:
        request = {"method": self.name, "act": act, "inputs": inputs or []}
        return self._program._ask(request, f"method {self.name!r}")


def _spec(kind: str, dtype: str | None, shape_max: Any, dynamic: Any, value: object, name: str) -> ValueSpec:
    return ValueSpec(kind, DType(dtype) if dtype else None, tuple(shape_max), tuple(dynamic), value, name)


def _sent(source: Source) -> Any:
    """A file as its process can open it, which runs in another folder."""
    if isinstance(source, (str, os.PathLike)):
        return os.path.abspath(source)
    return np.frombuffer(source, np.uint8)


def _input(value: object) -> object:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise InputError(f"an isolated program takes arrays and scalars, not a {type(value).__name__}")
    return array


def how_it_ended(code: int) -> str:
    """What a process did last, by its exit code."""
    if code >= 0:
        return f"ended its process with code {code}"
    try:
        return f"ended its process by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended its process by signal {-code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and wait until it is gone."""
    process.kill()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):  # what was left to write has no reader
                stream.close()
    process.wait()
