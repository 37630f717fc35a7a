"""Every error that Pteron raises on purpose to its callers.

PteronError
├── FormatError         the file cannot be run as it is; the message says where and why
│   ├── MissingFileError    there is none of that name; also a FileNotFoundError
│   ├── GraphError          it is readable, but contradicts itself
│   └── UnsupportedError    it needs operators or backends that are not available
├── InputError          a call was given something the method does not take
│   ├── MethodError         the program has no method of that name; also a KeyError
│   ├── ShapeError          rank or size
│   │   └── MisfitError         found only inside the graph, so it is a GraphError too
│   └── DtypeError          element type
├── LoweringError       ExecuTorch cannot make a program of a module
├── HostError           an operator outside the delegates failed
├── IsolatedError       the process of an isolated program ended
└── DeviceError         no adapter, a closed device, or what a device refused to do
    ├── OutOfMemory         it has no room; it goes on without what was asked for. Also a MemoryError
    ├── DeviceLost          it is gone, with all that was on it
    └── StateLost           a call failed while it changed what calls leave behind
"""

from __future__ import annotations


class PteronError(Exception):
    """The base of all errors raised by Pteron."""


class FormatError(PteronError):
    """A file is damaged, truncated, of another kind, or asks for what cannot be done."""


class MissingFileError(FormatError, FileNotFoundError):
    """There is no file of that name."""


class GraphError(FormatError):
    """A program is inconsistent: the message names the node and what was expected."""


class UnsupportedError(FormatError):
    """The program needs operators or backends that are not available, all of them listed."""


class InputError(PteronError):
    """A call's inputs do not fit the method."""


class MethodError(InputError, KeyError):
    """The program has no method of that name."""

    __str__ = Exception.__str__  # a KeyError would show its message quoted


class ShapeError(InputError):
    """A rank or size is not what the program allows."""


class MisfitError(ShapeError, GraphError):
    """A graph's tensors do not fit together at the shapes and integers of a call.

    Either the call or the graph is at fault; certainly the graph where no live integer had a say in it.
    """

    def __init__(self, message: str, *, is_certain: bool = False) -> None:
        super().__init__(message)
        self.is_certain = is_certain


class DtypeError(InputError):
    """An element type is not what the program takes."""


class LoweringError(PteronError):
    """ExecuTorch cannot make a program of a module; its own error is the cause."""


class HostError(PteronError):
    """An operator outside the delegates could not run on the host."""


class IsolatedError(PteronError):
    """The process of an isolated program crashed, took too long or was interrupted: load it again."""


class DeviceError(PteronError):
    """The GPU is missing, too small or closed, or refused what it was asked for."""


class OutOfMemory(DeviceError, MemoryError):  # noqa: N818  # as the condition is called
    """The device has no room for a buffer. It stays usable, and what was half made is freed."""


class DeviceLost(DeviceError):  # noqa: N818  # as WebGPU calls it
    """The device is gone, and with it all that was there. Programs can be loaded again, onto a new one."""


class StateLost(DeviceError):  # noqa: N818  # beside DeviceLost
    """A call failed after it began to change buffers that live across calls; `reset()` starts them over."""
