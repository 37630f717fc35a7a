"""Python as it is on Windows, as far as another system can act it.

    import fake_windows
    fake_windows.begin()
    import pteron

removes what only POSIX has, and lets files and processes behave as there. Packages that load a system's
libraries are imported first, as they are here.
"""

from __future__ import annotations

import asyncio
import builtins
import ctypes
import errno
import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

FREE_MEMORY = 3 << 30
MODULES = ("fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty")
FUNCTIONS = {
    "os": (
        *("chown", "fork", "forkpty", "getgid", "getpgid", "getuid", "geteuid", "killpg", "nice", "pread"),
        *("preadv", "pwrite", "register_at_fork", "sched_getaffinity", "setsid", "sysconf", "uname"),
    ),
    "signal": ("SIGKILL", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGALRM", "SIGPIPE", "alarm", "pause"),
}
PACKAGES = ("wgpu.backends.wgpu_native", "uvicorn", "fastapi", "multiprocessing", "concurrent.futures")


def begin() -> None:
    """From here on, this process looks like one of Windows to modules that are not imported yet."""
    for name in PACKAGES:
        importlib.import_module(name)
    sys.platform = "win32"
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]  # an import of it is an error
    for module, names in FUNCTIONS.items():
        for name in names:
            if hasattr(sys.modules[module], name):
                delattr(sys.modules[module], name)
    ctypes.windll = SimpleNamespace(  # type: ignore[attr-defined]  # Windows has it
        kernel32=SimpleNamespace(GlobalMemoryStatusEx=_memory_status)
    )
    asyncio.ProactorEventLoop = asyncio.SelectorEventLoop  # type: ignore[attr-defined]  # Windows has it
    _files()
    _processes()


def _memory_status(status: Any) -> int:
    assert status[0] == ctypes.sizeof(status)
    status[2] = FREE_MEMORY
    return 1


def _files() -> None:
    """Folders cannot be opened; a file that is replaced is open in another process the first time; `rename`
    does not replace."""
    open_here, replace, rename = builtins.open, Path.replace, Path.rename
    tried: set[str] = set()

    def open_file(file: Any, *arguments: Any, **options: Any) -> Any:
        if not isinstance(file, int) and os.path.isdir(file):
            raise PermissionError(errno.EACCES, "Permission denied", str(file))
        return open_here(file, *arguments, **options)

    def replace_file(self: Path, target: Any) -> Path:
        if os.path.exists(target) and str(target) not in tried:
            tried.add(str(target))
            raise PermissionError(errno.EACCES, "Access is denied", str(target))
        return replace(self, target)

    def rename_file(self: Path, target: Any) -> Path:
        if os.path.exists(target):
            raise FileExistsError(errno.EEXIST, "the file exists", str(target))
        return rename(self, target)

    builtins.open = open_file
    Path.replace = replace_file  # type: ignore[method-assign,assignment]
    Path.rename = rename_file  # type: ignore[method-assign,assignment]


def _processes() -> None:
    """Process groups are made by flags, not by sessions."""
    start = subprocess.Popen.__init__

    def start_process(self: Any, *arguments: Any, creationflags: int = 0, **options: Any) -> None:
        assert not {"start_new_session", "process_group", "preexec_fn"} & set(options)
        assert creationflags in (0, 0x200)  # CREATE_NEW_PROCESS_GROUP
        start(self, *arguments, process_group=0 if creationflags else None, **options)

    subprocess.Popen.__init__ = start_process  # type: ignore[method-assign]
    subprocess.Popen.kill = subprocess.Popen.terminate  # type: ignore[method-assign]  # as there
