"""PLAN -> OUTPUTS: programs, methods, delegate sessions, and operators on the host."""

from typing import TYPE_CHECKING

from pteron.lazy import lazy

if TYPE_CHECKING:
    from pteron.host.tensors import GpuTensor
    from pteron.runtime.executorch_api import Runtime, Verification
    from pteron.runtime.method import Method
    from pteron.runtime.program import Program, load
    from pteron.runtime.sequence import Sequence
    from pteron.runtime.session import Counters
    from pteron.runtime.specs import ValueSpec

__all__ = [
    "Counters",
    "GpuTensor",
    "Method",
    "Program",
    "Runtime",
    "Sequence",
    "ValueSpec",
    "Verification",
    "load",
]

# The modules of these names. Most drive a GPU: whoever only reads programs imports none of them.
_HOMES = {
    "Counters": "session",
    "GpuTensor": "pteron.host.tensors",
    "Method": "method",
    "Program": "program",
    "Runtime": "executorch_api",
    "Sequence": "sequence",
    "ValueSpec": "specs",
    "Verification": "executorch_api",
    "load": "program",
}
__getattr__, __dir__ = lazy(__name__, _HOMES)
