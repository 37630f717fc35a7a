"""Executable <-> bytes: a JSON header that any language can read, then the aligned weights.

    magic "PTEX" · version u32 · length of the header u64 · header · weights, each at a multiple of 64

The header holds the modules as complete WGSL, the buffers as one table that launches refer to by number, and
the plans. Kernels of an untrusted file are compiled with bounds checks; the reader of the file decides.
"""

from pteron.plan.archive.reader import read
from pteron.plan.archive.writer import write

__all__ = ["read", "write"]
