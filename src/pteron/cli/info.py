"""pteron info: the machine's adapters."""

from __future__ import annotations

import argparse

from pteron.cli.arguments import add_adapter, add_json, examples
from pteron.cli.terminal import show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_adapter(parser)
    add_json(parser)
    examples(parser, "pteron info", "pteron info --adapter nvidia", "pteron info --json")


def command(arguments: argparse.Namespace) -> int:
    from pteron.tools.machine import examine, machine_lines
    from pteron.tools.text import json_text

    report = examine(arguments.adapter)
    if arguments.json:
        print(json_text(report))
    else:
        show(machine_lines(report))
    return 0
