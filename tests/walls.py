"""A wall around wgpu's library and the drivers: whatever calls them afterwards ends the process (SIGSEGV)."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

_MAPPED = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) r-xp .*/([^/\n]+)$", re.MULTILINE)
_WALLED = re.compile(r"wgpu|vulkan|nvidia|LLVM|gallium")
_PROT_READ = 1


def put_up_walls() -> list[str]:
    """Take the right to execute from their code, as Linux maps it; the names of the libraries."""
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    walled = []
    for start, end, name in _MAPPED.findall(Path("/proc/self/maps").read_text()):
        if _WALLED.search(name):
            first = int(start, 16)
            size = ctypes.c_size_t(int(end, 16) - first)
            if protect(ctypes.c_void_p(first), size, _PROT_READ):
                raise OSError(ctypes.get_errno(), f"{name} cannot be walled in")
            walled.append(name)
    return walled
