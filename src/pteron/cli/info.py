"""pteron info: the adapters of this machine."""

from __future__ import annotations

import argparse

from pteron.cli.arguments import Options, add_examples
from pteron.cli.terminal import print_report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options = Options(parser)
    options.adapter()
    options.json()
    add_examples(parser, "pteron info", "pteron info --adapter nvidia", "pteron info --json")


def command(arguments: argparse.Namespace) -> int:
    from pteron.tools.machine import examine, machine_lines
    from pteron.tools.text import json_text

    report = examine(arguments.adapter)
    if arguments.json:
        print(json_text(report))
    else:
        print_report(machine_lines(report))
    return 0
