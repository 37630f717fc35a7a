"""Executable <-> bytes: a header of JSON that any language reads, and the weights behind it, aligned.

    magic "PTEX" · version u32 · length of the header u64 · header · weights, each from a multiple of 64 on

The header holds the modules as finished WGSL, the buffers as one table that launches refer to by number, and
the plans. A file that comes from elsewhere is only as good as its author: its kernels are compiled with
bounds checks, unless whoever reads it trusts it.
"""

from pteron.plan.archive.reader import read
from pteron.plan.archive.writer import write

__all__ = ["read", "write"]
