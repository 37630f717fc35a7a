"""What differs between operating systems: processes, files that are open elsewhere, free memory."""

from __future__ import annotations

import errno
import gc
import os
import sys
import time
from pathlib import Path
from typing import Any

IS_WINDOWS = sys.platform == "win32"
_MEMORY = Path("/proc/meminfo")
_RETRIES, _RETRY_SECONDS = 20, 0.01
_NEW_PROCESS_GROUP = 0x00000200  # CREATE_NEW_PROCESS_GROUP of Windows


def new_process_group() -> dict[str, Any]:
    """Arguments of `subprocess` for a process that Ctrl-C in the terminal does not reach."""
    return {"creationflags": _NEW_PROCESS_GROUP} if IS_WINDOWS else {"process_group": 0}


def move(source: Path, target: Path) -> None:
    """Move a file to where another may be. Windows refuses while another process has that one open, as
    readers and virus scanners do for a moment; so try for a fifth of a second."""
    for left in reversed(range(_RETRIES if IS_WINDOWS else 1)):
        try:
            source.replace(target)
            return
        except PermissionError:
            if not left:
                raise
            time.sleep(_RETRY_SECONDS)


def is_broken_pipe(error: OSError) -> bool:
    """Whether the reader of a pipe has ended. Windows calls that an invalid argument."""
    return isinstance(error, BrokenPipeError) or (
        IS_WINDOWS and error.errno == errno.EINVAL and error.filename is None
    )


def free_memory() -> int | None:
    """Bytes of memory that processes can still take, at most; None if it is unknown."""
    if IS_WINDOWS:
        return _free_memory_of_windows()
    if _MEMORY.exists():
        fields = dict(line.split(":", 1) for line in _MEMORY.read_text("utf-8").splitlines())
        kilobytes = fields.get("MemAvailable", "").split()
        return int(kilobytes[0]) << 10 if kilobytes else None
    try:  # macOS tells how much there is in all
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _free_memory_of_windows() -> int | None:
    """`ullAvailPhys` of MEMORYSTATUSEX, whose two fields of 32 bits are followed by sizes in bytes."""
    import ctypes

    status = (ctypes.c_uint64 * 8)(8 * 8)  # the first field is the size of the structure
    kernel: Any = ctypes.windll.kernel32  # type: ignore[attr-defined,unused-ignore]  # on Windows only
    return int(status[2]) if kernel.GlobalMemoryStatusEx(status) else None


def give_back_memory() -> None:
    """Free what is unreachable, and return free memory to the system. By itself, glibc returns only the end
    of a heap: loading a model leaves megabytes of free blocks in the heaps of the threads that took part."""
    gc.collect()
    trim_heaps()


def trim_heaps() -> None:
    """Return free memory to the system."""
    if sys.platform == "linux":
        import ctypes

        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have none
        if trim is not None:
            trim(0)


def open_files_max() -> int:
    """The number of files that this process may open."""
    if IS_WINDOWS:
        return 1 << 13
    import resource

    soft: Any = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 20 if soft == resource.RLIM_INFINITY else int(soft)


def address_space_max() -> int | None:
    """Bytes of address space that this process may have (`ulimit -v`); None without a limit."""
    if IS_WINDOWS:
        return None
    import resource

    soft: Any = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if soft == resource.RLIM_INFINITY else int(soft)
