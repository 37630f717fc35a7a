"""The command line: arguments enter, library functions do the work, text leaves.

The exit code is 0 where all went well, 1 where it did not (one sentence on stderr says why), 2 for arguments
that make no sense, and 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

import pteron
from pteron.cli.arguments import examples
from pteron.cli.stdio import discard, flush, prepare

INTERRUPTED = 130  # as shells report a program that Ctrl-C ended
# Each is a module beside this one, imported where it is asked for, with `add_arguments` and `command`. What
# does the work is imported by `command`: help takes no time.
COMMANDS = {
    "info": "the adapters of this machine, and which one is used",
    "inspect": "what is in a program, whether or not it can run",
    "run": "run a method, with random inputs where none are given",
    "profile": "where the time of a call goes: every launch, layers, the host",
    "bench": "latency and throughput, and whether they got worse",
    "compare": "find the node whose output departs from a reference",
    "generate": "continue a text with a language model",
    "chat": "talk with a language model",
    "serve": "a language model behind HTTP, for OpenAI's clients and browsers",
    "export": "make a program from a checkpoint",
    "demo": "tell a story with a small model that comes with Pteron",
    "completion": "what a shell needs to complete Pteron's arguments",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code. Errors are one sentence on stderr."""
    given = sys.argv[1:] if argv is None else list(argv)
    try:
        prepare()
        try:
            code = _run(given)
        except SystemExit:  # argparse has printed help, or what is wrong with the arguments
            flush()
            raise
        flush()
    except pteron.PteronError as error:
        return _complain(str(error))
    except KeyboardInterrupt:
        discard(sys.stdout)
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        discard(sys.stdout)
        return 1
    except (OSError, UnicodeError) as error:  # a full disk, a folder of another user's, text that is none
        return _complain(_said(error))
    except (MemoryError, RecursionError) as error:
        return _complain(f"there is not enough memory for this {error}")
    return code


def build_parser(given: Sequence[str]) -> argparse.ArgumentParser:
    """A parser of all commands, and of the arguments of those that are among these."""
    parser = argparse.ArgumentParser(
        prog="pteron", description="Run ExecuTorch programs on every GPU, through WebGPU."
    )
    parser.add_argument("-V", "--version", action="version", version=f"pteron {pteron.__version__}")
    examples(parser, "pteron demo", "pteron inspect model.pte", "pteron run model.pte --dim 7")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, purpose in COMMANDS.items():
        command = commands.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.")
        if name in given:
            module = import_module(f"pteron.cli.{name}")
            module.add_arguments(command)
            command.set_defaults(command=module.command)
    return parser


def _run(given: list[str]) -> int:
    parser = build_parser(given)
    if not given:
        parser.print_help(sys.stderr)
        return 2
    arguments = parser.parse_args(given)
    arguments.given = given
    code: int = arguments.command(arguments)
    return code


def _said(error: OSError | UnicodeError) -> str:
    """What went wrong, and with which file."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


def _complain(problem: str) -> int:
    from pteron.cli.terminal import complain

    discard(sys.stdout)
    complain(" ".join(problem.split()))
    return 1
