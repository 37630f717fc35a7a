"""The command line: arguments enter, library functions do the work, text leaves.

Exit codes: 0 for success, 1 for a failure (one sentence on stderr says why), 2 for wrong arguments, 130 after
Ctrl-C.
"""

from __future__ import annotations

import argparse
import atexit
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from importlib import import_module
from typing import NoReturn

import pteron
from pteron.cli.arguments import Parser, add_examples
from pteron.cli.terminal import device_notes, discard_unwritten, prepare_streams, print_error, print_note
from pteron.system import is_broken_pipe

INTERRUPTED = 130  # what shells report for a program that Ctrl-C ended
# Each command is a module of this package with `add_arguments` and `command`, imported only when it is named.
# `command` imports what does the work, so that help is quick.
COMMANDS = {
    "info": "list the GPUs of this machine and the one that Pteron uses",
    "inspect": "show what a program contains and whether it runs here",
    "estimate": "estimate memory and speed of a program on GPUs, without one",
    "run": "run a method, with random inputs unless some are given",
    "profile": "measure where the time of a call goes: launches, layers, host",
    "bench": "measure latency and throughput, and detect regressions",
    "compare": "find the node whose output differs from a reference",
    "doctor": "find kernels that are wrong on a GPU, and make programs do without them",
    "generate": "continue a text with a language model",
    "chat": "chat with a language model",
    "serve": "serve a language model over HTTP, with OpenAI's API and a chat page",
    "pull": "download a model and build its program",
    "list": "list the models on this machine, with their sizes",
    "rm": "remove a model from the cache",
    "export": "export a checkpoint as a program",
    "demo": "generate a story with a small model that comes with Pteron",
    "completion": "print a completion script for a shell",
}
_MODULES = {"list": "list_models"}  # a module `list` would hide the type in this package
_OTHER_NAMES = {"ls": "list"}


def run_process() -> NoReturn:
    """Run the command of this process's arguments and end the process with its exit code."""
    try:
        code: object = main()
    except SystemExit as ended:  # argparse has printed its message
        code = ended.code
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command is done: Ctrl-C has nothing left to stop
    discard_unwritten(sys.stdout)
    discard_unwritten(sys.stderr)
    atexit._run_exitfuncs()
    # A normal exit would free every object first: 50 ms for memory that the system frees anyway.
    os._exit(code if isinstance(code, int) else 0)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Errors are one sentence on stderr."""
    given = sys.argv[1:] if argv is None else list(argv)
    given[:1] = [_OTHER_NAMES.get(name, name) for name in given[:1]]
    try:
        prepare_streams()
        try:
            code = _run(given)
        except SystemExit:  # argparse has printed help or an error
            sys.stdout.flush()
            raise
        sys.stdout.flush()  # here, so that a full disk is reported
    except pteron.PteronError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        discard_unwritten(sys.stdout)
        return INTERRUPTED
    except OSError as error:
        if is_broken_pipe(error):  # the reader, such as `head`, has stopped reading
            discard_unwritten(sys.stdout)
            return 1
        what = error.strerror or str(error)
        return _fail(f"{error.filename}: {what}" if error.filename else what)
    except UnicodeError as error:
        return _fail(str(error))
    except MemoryError as error:
        return _fail(f"there is not enough memory for this {error}")
    except RecursionError as error:
        return _fail(f"the input is nested too deeply: {error}")
    return code


def build_parser(given: Sequence[str]) -> argparse.ArgumentParser:
    """A parser that knows all commands, and the arguments of those named in `given`."""
    parser = Parser(prog="pteron", description="Run ExecuTorch programs on every GPU, through WebGPU.")
    parser.add_argument("-V", "--version", action="version", version=f"pteron {pteron.__version__}")
    add_examples(parser, "pteron demo", "pteron inspect model.pte", "pteron run model.pte --dim 7")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, purpose in COMMANDS.items():
        command = commands.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.")
        if name in given:
            module = import_module(f"pteron.cli.{_MODULES.get(name, name)}")
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
    is_for_people = getattr(arguments, "json", None) is not True and not getattr(arguments, "quiet", False)
    with device_notes(print_note) if is_for_people and hasattr(arguments, "device") else nullcontext():
        code: int = arguments.command(arguments)
    return code


def _fail(problem: str) -> int:
    discard_unwritten(sys.stdout)
    print_error(" ".join(problem.split()))
    return 1
