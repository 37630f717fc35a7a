"""The command line: arguments enter, library functions do the work, text leaves.

The exit code is 0 where all went well, 1 where it did not (one sentence on stderr says why), 2 for arguments
that make no sense, and 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import pteron

INTERRUPTED = 130  # as shells report a program that Ctrl-C ended
# Each is a module beside this one, imported where it is asked for, with `add_arguments` and `command`.
COMMANDS = {
    "info": "the adapters of this machine, and which one is used",
    "inspect": "what is in a program, whether or not it can run",
    "run": "run a method, with random inputs where none are given",
    "profile": "where the time of a call goes: every launch, layers, the host",
    "bench": "latency and throughput, and whether they got worse",
    "generate": "continue a text with a language model",
    "chat": "talk with a language model",
    "export": "make a program from a checkpoint",
    "demo": "tell a story with a small model that comes with Pteron",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code. Errors are one sentence on stderr."""
    given = sys.argv[1:] if argv is None else list(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a model may say what a terminal cannot show
    arguments = build_parser(given).parse_args(given)
    arguments.given = given
    try:
        code: int = arguments.command(arguments)
        sys.stdout.flush()
    except pteron.PteronError as error:
        return _complain(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OSError, UnicodeError) as error:  # a full disk, a folder of another user's, text that is none
        return _complain(str(error))
    except (MemoryError, RecursionError) as error:
        return _complain(f"there is not enough memory for this {error}")
    return code


def _complain(problem: str) -> int:
    print(f"pteron: {' '.join(problem.split())}", file=sys.stderr)
    return 1


def build_parser(given: Sequence[str]) -> argparse.ArgumentParser:
    """A parser of all commands, and of the arguments of the one that is among these."""
    parser = argparse.ArgumentParser(
        prog="pteron", description="Run ExecuTorch programs on every GPU, through WebGPU."
    )
    parser.add_argument("--version", action="version", version=f"pteron {pteron.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, purpose in COMMANDS.items():
        command = commands.add_parser(name, help=purpose)
        if name in given:
            module = import_module(f"pteron.cli.{name}")
            module.add_arguments(command)
            command.set_defaults(command=module.command)
    return parser
