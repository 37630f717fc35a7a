"""pteron info: the machine's adapters."""

from __future__ import annotations

import argparse

from pteron.cli.arguments import Commands, add_adapter, add_json
from pteron.tools.machine import examine
from pteron.tools.machine_text import machine_lines
from pteron.tools.text import json_text


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser("info", help="the adapters of this machine, and which one is used")
    add_adapter(parser)
    add_json(parser)
    parser.set_defaults(command=command)


def command(arguments: argparse.Namespace) -> int:
    report = examine(arguments.adapter)
    print(json_text(report) if arguments.json else "\n".join(machine_lines(report)))
    return 0
