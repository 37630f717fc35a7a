"""Handles of wgpu's library, released with the last reference to them.

Python heeds signals between instructions of its own, never inside a function that is written in C. So a
handle gets its owner inside the call of `next` or `list.extend` that asks the library for it: Ctrl-C comes
before, and there is none, or afterwards, and it is owned.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import starmap
from typing import Any, TypeAlias

from pteron.gpu.fork import when_forked
from pteron.gpu.native import address, ffi, gpu_classes, lib

Release: TypeAlias = Callable[[Any], None]
_COMMAND_BUFFER = ffi.typeof("WGPUCommandBuffer")
_released_by: Callable[[Release, Any], None] | None = None


def release_by(releasing: Callable[[Release, Any], None]) -> None:
    """Let a function call the functions that release handles, from now on."""
    global _released_by
    _released_by = releasing
    for kind in gpu_classes():
        if function := getattr(kind, "_release_function", None):
            kind._release_function = partial(releasing, function)


def owned(function: Callable[..., Any], arguments: tuple[Any, ...], release: Release) -> Any:
    """What a function of the library gives."""
    return next(map(ffi.gc, starmap(function, [arguments]), [release]))


def begin(device: Any) -> Any:
    """An encoder of commands."""
    return owned(lib.wgpuDeviceCreateCommandEncoder, (device, ffi.NULL), lib.wgpuCommandEncoderRelease)


def finish(encoder: Any, finished: list[Any]) -> None:
    """Let a list get the command buffer of an encoder."""
    finish_by(lib.wgpuCommandEncoderFinish, (encoder, ffi.NULL), finished)


def finish_by(function: Callable[..., Any], arguments: tuple[Any, ...], finished: list[Any]) -> None:
    """Let a list get the command buffer that a function gives."""
    release: Release = _release
    if _released_by is not None:
        release = partial(_release_later, _released_by)
    finished.extend(map(ffi.gc, starmap(function, [arguments]), [release]))


class _Releasing:
    """Releases a command buffer. No instruction of Python's is in it, where Ctrl-C could come."""

    __call__ = staticmethod(lib.wgpuCommandBufferRelease)


_release = _Releasing()


def _release_nothing() -> None:
    """Leave command buffers to the process that this one was forked from."""
    _Releasing.__call__ = staticmethod(id)  # type: ignore[method-assign]  # which does nothing


when_forked(_release_nothing)


def _release_later(releasing: Callable[[Release, Any], None], ended: Any) -> None:
    """The reference ends here, what it points at does not yet."""
    releasing(lib.wgpuCommandBufferRelease, ffi.cast(_COMMAND_BUFFER, address(ended)))
