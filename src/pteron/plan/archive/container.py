"""The frame of an archive: its prefix, and where things start."""

from __future__ import annotations

import struct

MAGIC, VERSION = b"PTEX", 1
PREFIX = struct.Struct("<4sIQ")  # magic, version, length of the header
_ALIGNMENT = 64


def aligned(size: int) -> int:
    """The next place where a weight may start."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT
