"""PLAN -> OUTPUTS: programs, methods, delegate sessions, and operators on the host."""

from typing import TYPE_CHECKING

from pteron.lazy import lazy

if TYPE_CHECKING:
    from pteron.runtime.method import Method
    from pteron.runtime.mirror import Runtime, Verification
    from pteron.runtime.program import Program, load
    from pteron.runtime.sequence import Sequence
    from pteron.runtime.session import Counters
    from pteron.runtime.specs import ValueSpec
    from pteron.runtime.tensors import GpuTensor

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
    "GpuTensor": "tensors",
    "Method": "method",
    "Program": "program",
    "Runtime": "mirror",
    "Sequence": "sequence",
    "ValueSpec": "specs",
    "Verification": "mirror",
    "load": "program",
}
__getattr__, __dir__ = lazy(__name__, _HOMES)
