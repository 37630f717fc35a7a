"""A command that has a process to itself."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from typing import NoReturn

from pteron.cli import main
from pteron.cli.stdio import discard


def run() -> NoReturn:
    """Run the command of the process's arguments, and end the process with its exit code."""
    try:
        code: object = main()
    except SystemExit as ended:  # argparse has said all there is to say
        code = ended.code
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done: what is left is to end
    leave(code if isinstance(code, int) else 0)


def leave(code: int) -> NoReturn:
    """End at once. Python would take apart, object by object, what the system frees anyway: 50 ms."""
    discard(sys.stdout)
    discard(sys.stderr)
    atexit._run_exitfuncs()
    os._exit(code)
