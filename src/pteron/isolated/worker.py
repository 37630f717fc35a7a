"""The process of an isolated program: it loads the program, then runs one call after the other.

Requests come from stdin, replies go to the original stdout; other output to stdout, such as drivers', goes to
stderr. The process ends with its owner.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from queue import Queue
from threading import Thread
from typing import IO, Any

import numpy as np

from pteron.errors import PteronError
from pteron.isolated.wire import WireError, pack, receive, send
from pteron.runtime import Program, ValueSpec, load


def main() -> None:
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    requests = _requests(sys.stdin.buffer)
    first = next(requests)
    try:
        _limit_memory(first["memory"])
        program = load(_source(first["source"]), list(map(_source, first["data"])), first["device"])
        send(replies, pack({"methods": list(program.methods)}))
    except Exception as error:
        send(replies, pack(_described(error)))
        os._exit(0)  # at once: Python would wait for the reading thread
    for request in requests:
        try:
            reply = pack(_answer(program, **request))
        except WireError as error:
            reply = pack(_described(PteronError(f"{program.file.name}: {error}")))
        except Exception as error:
            reply = pack(_described(error))
        send(replies, reply)


def _answer(program: Program, method: str, act: str, inputs: list[Any]) -> dict[str, Any]:
    """Describe, reset or call a method."""
    found = program[method]
    if act == "describe":
        return {kind: list(map(_spec, getattr(found, kind))) for kind in ("inputs", "outputs")}
    if act == "reset":
        found.reset()
        return {}
    return {"outputs": list(found(*inputs))}


def _spec(spec: ValueSpec) -> dict[str, Any]:
    return {**asdict(spec), "dtype": str(spec.dtype) if spec.dtype else None}


def _source(source: Any) -> Any:
    """A path, or a file's bytes."""
    return source.data if isinstance(source, np.ndarray) else source


def _described(error: Exception) -> dict[str, Any]:
    """An error for the owner to raise; other types than Pteron's become a PteronError."""
    if isinstance(error, PteronError):
        return {"error": type(error).__name__, "message": str(error)}
    return {"error": "PteronError", "message": f"{type(error).__name__}: {error}"}


def _requests(stream: IO[bytes]) -> Iterator[dict[str, Any]]:
    """All requests. A thread reads them, so that the end of the owner is noticed during a call too."""
    queue: Queue[dict[str, Any]] = Queue()

    def read() -> None:
        try:
            for request in iter(partial(receive, stream), None):
                queue.put(request)
        finally:
            os._exit(0)  # the owner has ended

    Thread(target=read, daemon=True).start()
    while True:
        yield queue.get()


def _limit_memory(most: int | None) -> None:
    """Limit the writable memory of this process. Drivers reserve large address ranges, so a limit on
    addresses would not work."""
    if most is not None:
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


if __name__ == "__main__":
    main()
