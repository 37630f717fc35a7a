"""PLAN -> OUTPUTS: programs, methods, delegate sessions, and operators on the host."""

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
