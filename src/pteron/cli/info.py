"""pteron info: the adapters of this machine."""

from __future__ import annotations

import argparse

from pteron.cli.arguments import Options, add_examples
from pteron.cli.terminal import print_result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options = Options(parser)
    options.adapter()
    options.json()
    add_examples(parser, "pteron info", "pteron info --adapter nvidia", "pteron info --json")


def command(arguments: argparse.Namespace) -> int:
    from pteron.tools.machine import examine, machine_lines

    report = examine(arguments.adapter)
    print_result(report, machine_lines(report), as_json=arguments.json)
    return 0
