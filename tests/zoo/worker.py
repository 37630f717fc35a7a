"""The process of one model."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from zoo.result import Result


def work(
    measure: Callable[[str], Result],
    name: str,
    connection: Connection,
    limit_s: int,
    memory_gb: float,
    log: Path,
) -> None:
    """Send a result as a dict; what packages print goes to the log."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a command that is stopped keeps what it waits for
    with log.open("w") as text:
        os.dup2(text.fileno(), sys.stdout.fileno())
        os.dup2(text.fileno(), sys.stderr.fileno())
    size = int(memory_gb * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
    connection.send(measure(name).as_dict())
