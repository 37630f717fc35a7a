"""A program in its own process: a crash there is an IsolatedError here."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np

from pteron.dtypes import DType
from pteron.errors import InputError, MethodError
from pteron.format.source import open_bytes
from pteron.isolated.process import Process
from pteron.processes import ISOLATED_SECONDS
from pteron.runtime.program import Source
from pteron.runtime.specs import ValueSpec

WORKER = "pteron.isolated.worker"
_MEMORY_MAX = 1 << 62  # bytes, as systems count them
_T = TypeVar("_T")


def load_isolated(
    source: Source,
    data: Iterable[Source] | Source = (),
    device: str | None = None,
    *,
    seconds: float = ISOLATED_SECONDS,
    memory: int | None = None,
) -> IsolatedProgram:
    """Load an untrusted program in its own process. It works like `pteron.load`, but a crash, a call that
    takes too long, or too much memory raises an IsolatedError here. After that, load the program again.

    Loading and each call may take up to `seconds`. On Linux, `memory` limits the process's writable memory in
    bytes. GPU memory does not count; memory that libraries reserve does (on ARM, PyTorch reserves a gigabyte
    when a program needs it). This is not a sandbox: the process has the rights of its user.
    """
    return IsolatedProgram(source, data, device, seconds, memory)


class IsolatedProgram:
    """A program in its own process: `program["forward"](x)` runs a method. `with` ends the process at the end
    of the block."""

    def __init__(
        self,
        source: Source,
        data: Iterable[Source] | Source,
        device: str | None,
        seconds: float,
        memory: int | None,
    ) -> None:
        _check(device, seconds, memory)
        sources = [data] if isinstance(data, (str, os.PathLike, bytes, bytearray, memoryview)) else data
        given = {"source": _sent(source), "data": [_sent(each) for each in sources]}
        request = {**given, "device": device, "memory": memory}
        self._name = str(source) if isinstance(source, (str, os.PathLike)) else "a program given as bytes"
        self._process = Process(WORKER, self._name, seconds)
        try:
            self.methods: tuple[str, ...] = self._process.ask(
                request, "loading it", lambda reply: tuple(map(str, _list(reply["methods"])))
            )
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<pteron.IsolatedProgram {self._name}: {', '.join(self.methods)}>"

    def __getitem__(self, name: str) -> IsolatedMethod:
        if name not in self.methods:
            raise MethodError(f"{self._name} has no method {name!r}; it has {', '.join(self.methods)}")
        return IsolatedMethod(self._process, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.methods)

    def __len__(self) -> int:
        return len(self.methods)

    def __contains__(self, name: object) -> bool:
        return name in self.methods

    def close(self) -> None:
        """End the process."""
        self._process.close("the program is closed")

    def __enter__(self) -> IsolatedProgram:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class IsolatedMethod:
    """`method(*inputs)` runs it, with NumPy arrays and scalars in and out."""

    def __init__(self, process: Process, name: str) -> None:
        self._process = process
        self.name = name

    @property
    def inputs(self) -> tuple[ValueSpec, ...]:
        """The inputs: element types, maximum shapes, which dims are dynamic."""
        return self._ask("describe", [], lambda reply: _specs(reply["inputs"]))

    @property
    def outputs(self) -> tuple[ValueSpec, ...]:
        """The outputs."""
        return self._ask("describe", [], lambda reply: _specs(reply["outputs"]))

    def __call__(self, *inputs: object) -> tuple[Any, ...]:
        """Run the method; the outputs are a tuple."""
        return self._ask("call", list(map(_input, inputs)), lambda reply: tuple(_list(reply["outputs"])))

    def reset(self) -> None:
        """Set caches and mutated buffers to their initial values."""
        self._ask("reset", [], lambda reply: None)

    def _ask(self, act: str, inputs: list[Any], read: Callable[[dict[str, Any]], _T]) -> _T:
        request = {"method": self.name, "act": act, "inputs": inputs}
        return self._process.ask(request, f"method {self.name!r}", read)


# Requests -----------------------------------------------------------------------------------


def _check(device: object, seconds: object, memory: object) -> None:
    if device is not None and not isinstance(device, str):
        raise InputError(f"the device of an isolated program is part of an adapter's name, not {device!r}")
    if not isinstance(seconds, (int, float)) or not 0 < seconds <= threading.TIMEOUT_MAX:
        raise InputError(f"seconds is {seconds!r}; expected a finite number above 0")
    if memory is None:
        return
    if not sys.platform.startswith("linux"):
        raise InputError("the memory of an isolated program can only be limited on Linux")
    if not isinstance(memory, int) or not 0 < memory <= _MEMORY_MAX:
        raise InputError(f"memory is {memory!r}; expected a number of bytes above 0")


def _sent(source: Source) -> Any:
    """A file for the process, which runs in another folder."""
    if isinstance(source, (str, os.PathLike)):
        return os.path.abspath(os.fsdecode(source))
    return np.frombuffer(open_bytes(source).view, np.uint8)


def _input(value: object) -> object:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    try:
        array = np.asarray(value)
    except Exception as error:  # the object's own methods may raise anything
        raise InputError(f"a {type(value).__name__} cannot be read as an array: {error}") from error
    if array.dtype.kind not in "biuf":
        raise InputError(f"an isolated program takes arrays and scalars, not a {type(value).__name__}")
    return array


# Replies: a LookupError, TypeError or ValueError here means an invalid reply ----------------------


def _specs(described: object) -> tuple[ValueSpec, ...]:
    return tuple(_spec(**each) for each in _list(described))


def _spec(dtype: str | None, shape_max: Any, dynamic: Any, shape_min: Any, **others: Any) -> ValueSpec:
    return ValueSpec(
        dtype=DType(dtype) if dtype else None,
        shape_max=tuple(shape_max),
        dynamic=tuple(dynamic),
        shape_min=tuple(shape_min),
        **others,
    )


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, not {type(value).__name__}")
    return value
