"""The process of one architecture."""

from __future__ import annotations

import os
import resource
import sys
from multiprocessing.connection import Connection
from pathlib import Path


def work(name: str, connection: Connection, limit_s: int, memory_gb: float, log: Path) -> None:
    """Send a result as a dict; what packages print goes to the log."""
    with log.open("w") as text:
        os.dup2(text.fileno(), sys.stdout.fileno())
        os.dup2(text.fileno(), sys.stderr.fileno())
    size = int(memory_gb * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
    from zoo.measure import measure
    from zoo.table import MODELS

    connection.send(measure(name, MODELS[name]).as_dict())
