"""Run ExecuTorch programs on every GPU, through WebGPU.

import pteron

program = pteron.load("model.pte")
(y,) = program["forward"](x)
"""

from typing import TYPE_CHECKING, Any

import pteron.gpu.native  # noqa: F401  # first: drivers load while Python imports the rest

# isort: split
from pteron.dtypes import DType
from pteron.errors import (
    DeviceError,
    DtypeError,
    FormatError,
    GraphError,
    HostError,
    InputError,
    LoweringError,
    MethodError,
    MisfitError,
    PteronError,
    ShapeError,
    UnsupportedError,
)
from pteron.gpu import AdapterInfo, Device, adapters
from pteron.runtime import (
    Counters,
    GpuTensor,
    Method,
    Program,
    Runtime,
    Sequence,
    ValueSpec,
    Verification,
    load,
)

if TYPE_CHECKING:
    from pteron.export import CompiledModule, compile

__version__ = "0.1.0"

__all__ = [
    "AdapterInfo",
    "CompiledModule",
    "Counters",
    "DType",
    "Device",
    "DeviceError",
    "DtypeError",
    "FormatError",
    "GpuTensor",
    "GraphError",
    "HostError",
    "InputError",
    "LoweringError",
    "Method",
    "MethodError",
    "MisfitError",
    "Program",
    "PteronError",
    "Runtime",
    "Sequence",
    "ShapeError",
    "UnsupportedError",
    "ValueSpec",
    "Verification",
    "adapters",
    "compile",
    "load",
]


def __getattr__(name: str) -> Any:
    """What only those need who compile PyTorch modules is imported when they first ask for it."""
    if name in ("CompiledModule", "compile"):
        from pteron import export

        return getattr(export, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
