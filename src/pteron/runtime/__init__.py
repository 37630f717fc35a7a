"""Plan -> outputs: programs, methods and delegate sessions."""

from typing import TYPE_CHECKING

from pteron.lazy import lazy

if TYPE_CHECKING:
    from pteron.host.tensors import GpuTensor
    from pteron.runtime.executorch_api import Runtime, Verification
    from pteron.runtime.method import Method
    from pteron.runtime.pending import Pending
    from pteron.runtime.program import Program, load
    from pteron.runtime.sequence import Sequence
    from pteron.runtime.session import Counters
    from pteron.runtime.specs import ValueSpec

__all__ = [
    "Counters",
    "GpuTensor",
    "Method",
    "Pending",
    "Program",
    "Runtime",
    "Sequence",
    "ValueSpec",
    "Verification",
    "load",
]

# Name -> module, imported at the first use: most of them load GPU drivers.
_HOMES = {
    "Counters": "session",
    "GpuTensor": "pteron.host.tensors",
    "Method": "method",
    "Pending": "pending",
    "Program": "program",
    "Runtime": "executorch_api",
    "Sequence": "sequence",
    "ValueSpec": "specs",
    "Verification": "executorch_api",
    "load": "program",
}
__getattr__, __dir__ = lazy(__name__, _HOMES)
