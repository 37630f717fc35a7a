"""The errors that Pteron raises.

PteronError
├── FormatError         the file cannot be run; the message says where and why
│   ├── MissingFileError    the file does not exist; also a FileNotFoundError
│   ├── GraphError          it is readable, but inconsistent
│   └── UnsupportedError    it needs operators or backends that are not available
├── InputError          the inputs of a call do not fit the method
│   ├── MethodError         the program has no method of that name; also a KeyError
│   ├── ShapeError          rank or size
│   │   └── MisfitError         found inside the graph; also a GraphError
│   └── DtypeError          element type
├── LoweringError       ExecuTorch cannot lower a module
├── HostError           an operator outside the delegates failed
└── DeviceError         no adapter, a closed device, or an error of the device
    ├── OutOfMemory         not enough memory; the device stays usable. Also a MemoryError
    ├── DeviceLost          the device is lost, with everything on it
    └── StateLost           a call failed while it changed states
"""

from __future__ import annotations


class PteronError(Exception):
    """The base of all errors raised by Pteron."""


class FormatError(PteronError):
    """A file is damaged, truncated, or of another kind."""


class MissingFileError(FormatError, FileNotFoundError):
    """The file does not exist."""


class GraphError(FormatError):
    """A program is inconsistent: the message names the node and what was expected."""


class UnsupportedError(FormatError):
    """The program needs operators or backends that are not available, all of them listed."""


class InputError(PteronError):
    """A call's inputs do not fit the method."""


class MethodError(InputError, KeyError):
    """The program has no method of that name."""

    __str__ = Exception.__str__  # KeyError would quote the message


class ShapeError(InputError):
    """A rank or size is not what the program allows."""


class MisfitError(ShapeError, GraphError):
    """A graph's tensors do not fit together at the shapes and integers of a call.

    The cause is the call or the graph; `is_certain`: the graph, since no live integer is involved.
    """

    def __init__(self, message: str, *, is_certain: bool = False) -> None:
        super().__init__(message)
        self.is_certain = is_certain


class DtypeError(InputError):
    """An element type is not what the program takes."""


class LoweringError(PteronError):
    """ExecuTorch cannot lower a module; its own error is the cause."""


class HostError(PteronError):
    """An operator outside the delegates could not run on the host."""


class DeviceError(PteronError):
    """The GPU is missing, too small or closed, or reported an error."""


class OutOfMemory(DeviceError, MemoryError):  # noqa: N818  # the usual name
    """The device has not enough memory for a buffer. It stays usable, and partial allocations are freed."""


class DeviceLost(DeviceError):  # noqa: N818  # as WebGPU calls it
    """The device is lost, with everything on it. Programs can be loaded again onto a new one."""


class StateLost(DeviceError):  # noqa: N818  # beside DeviceLost
    """A call failed while it changed buffers that live across calls; `reset()` restores their initial
    values."""
