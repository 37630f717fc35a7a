"""pteron info: the machine's adapters."""

from __future__ import annotations

import argparse

from pteron.cli.arguments import add_adapter, add_json
from pteron.tools.machine import examine
from pteron.tools.machine_text import machine_lines
from pteron.tools.text import json_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_adapter(parser)
    add_json(parser)


def command(arguments: argparse.Namespace) -> int:
    report = examine(arguments.adapter)
    print(json_text(report) if arguments.json else "\n".join(machine_lines(report)))
    return 0
