"""The command line: arguments enter, library functions do the work, text leaves."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import pteron
from pteron.cli import chat, demo, export, generate, info, inspect, run

INTERRUPTED = 130  # as shells report a program that Ctrl-C ended


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code. Errors are one sentence on stderr."""
    arguments = build_parser().parse_args(argv)
    try:
        code: int = arguments.command(arguments)
        sys.stdout.flush()
    except pteron.PteronError as error:
        print(f"pteron: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pteron", description="Run ExecuTorch programs on every GPU, through WebGPU."
    )
    parser.add_argument("--version", action="version", version=f"pteron {pteron.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in (info, inspect, run, generate, chat, export, demo):
        command.add_parser(commands)
    return parser
