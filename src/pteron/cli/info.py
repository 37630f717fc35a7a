"""pteron info: the GPUs of this machine."""

from __future__ import annotations

import argparse

from pteron.cli.arguments import Options, add_examples
from pteron.cli.terminal import print_result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options = Options(parser)
    options.device()
    options.json()
    add_examples(parser, "pteron info", "pteron info --device nvidia", "pteron info --json")


def command(arguments: argparse.Namespace) -> int:
    from pteron.tools.machine import examine, machine_lines

    report = examine(arguments.device)
    print_result(report, machine_lines(report), as_json=arguments.json)
    return 0
