"""What a script prints on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios


def on_terminal(code: str, width: int, **environment: str) -> str:
    """What a script prints on a terminal of some width, with lines ended as in a file."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    settings = {**kept, "TERM": "xterm-256color", "PYTHONUTF8": "1", **environment}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=theirs, stderr=theirs, env=settings)
    os.close(theirs)
    read = b""
    try:
        while piece := os.read(ours, 65536):
            read += piece
    except OSError:  # a terminal reports this way that its last writer is gone
        pass
    process.wait()
    os.close(ours)
    return read.decode().replace("\r\n", "\n")


def seen(text: str) -> str:
    """A text without what is not seen: colours, and spaces at the end of lines."""
    return re.sub(r" +(?=\n)", "", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text))
