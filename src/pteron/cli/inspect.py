"""pteron inspect: what is in a file."""

from __future__ import annotations

import argparse

from pteron.cli.arguments import add_json, add_program
from pteron.tools.inspect import inspect
from pteron.tools.inspect_text import inspect_lines
from pteron.tools.text import json_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_program(parser, "a program (.pte), a bundled program (.bpte) or weights (.ptd)")
    parser.add_argument("--method", metavar="NAME", help="look into this method only")
    parser.add_argument("--graph", action="store_true", help="also print every node of the delegates")
    add_json(parser)


def command(arguments: argparse.Namespace) -> int:
    report = inspect(arguments.program, arguments.data, arguments.method, graph=arguments.graph)
    print(json_text(report) if arguments.json else "\n".join(inspect_lines(report)))
    return 0
