"""Run ExecuTorch programs on every GPU, through WebGPU.

import pteron

program = pteron.load("model.pte")
(y,) = program["forward"](x)
"""

from __future__ import annotations

from pteron.lazy import lazy

TYPE_CHECKING = False  # as checkers read it; `typing` would take longer to import than all that is here
if TYPE_CHECKING:
    from pteron.dtypes import DType
    from pteron.errors import (
        DeviceError,
        DeviceLost,
        DtypeError,
        FormatError,
        GraphError,
        HostError,
        InputError,
        LoweringError,
        MethodError,
        MisfitError,
        MissingFileError,
        OutOfMemory,
        PteronError,
        ShapeError,
        StateLost,
        UnsupportedError,
    )
    from pteron.export import CompiledModule, compile
    from pteron.gpu import Device
    from pteron.gpu.adapters import AdapterInfo, adapters
    from pteron.runtime import (
        Counters,
        GpuTensor,
        Method,
        Pending,
        Program,
        Runtime,
        Sequence,
        ValueSpec,
        Verification,
        load,
    )
    from pteron.tools.bench import Bench, bench
    from pteron.tools.compare import compare
    from pteron.tools.doctor import Diagnosis, doctor
    from pteron.tools.estimate import Estimate, estimate
    from pteron.tools.profile import Profile, profile
    from pteron.web import Site, export_web

__version__ = "0.1.0"

__all__ = [
    "AdapterInfo",
    "Bench",
    "CompiledModule",
    "Counters",
    "DType",
    "Device",
    "DeviceError",
    "DeviceLost",
    "Diagnosis",
    "DtypeError",
    "Estimate",
    "FormatError",
    "GpuTensor",
    "GraphError",
    "HostError",
    "InputError",
    "LoweringError",
    "Method",
    "MethodError",
    "MisfitError",
    "MissingFileError",
    "OutOfMemory",
    "Pending",
    "Profile",
    "Program",
    "PteronError",
    "Runtime",
    "Sequence",
    "ShapeError",
    "Site",
    "StateLost",
    "UnsupportedError",
    "ValueSpec",
    "Verification",
    "adapters",
    "bench",
    "compare",
    "compile",
    "doctor",
    "estimate",
    "export_web",
    "load",
    "profile",
]

# Name -> module, imported at the first use: a command that only prints its help
# needs neither NumPy nor drivers, and loading a program does not need the exporter.
_HOMES = {
    "DType": "dtypes",
    **dict.fromkeys((name for name in __all__ if name.endswith(("Error", "Lost"))), "errors"),
    "OutOfMemory": "errors",
    **dict.fromkeys(("CompiledModule", "compile"), "export"),
    **dict.fromkeys(("AdapterInfo", "Device", "adapters"), "gpu"),
    **dict.fromkeys(("Bench", "bench"), "tools.bench"),
    "compare": "tools.compare",
    **dict.fromkeys(("Diagnosis", "doctor"), "tools.doctor"),
    **dict.fromkeys(("Estimate", "estimate"), "tools.estimate"),
    **dict.fromkeys(("Profile", "profile"), "tools.profile"),
    **dict.fromkeys(("Site", "export_web"), "web"),
}
_HOMES.update({name: "runtime" for name in __all__ if name not in _HOMES})
__getattr__, __dir__ = lazy(__name__, _HOMES, driving={*_HOMES.values()} - {"dtypes", "errors"})
