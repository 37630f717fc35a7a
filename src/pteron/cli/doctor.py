"""pteron doctor: which kernels are wrong on an adapter."""

from __future__ import annotations

import argparse

from pteron.cli.arguments import Options, add_examples
from pteron.cli.named_model import find_program
from pteron.cli.progress import show_progress
from pteron.cli.terminal import print_result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options = Options(parser)
    options.model("; by default a built-in set of operators")
    options.data()
    options.flag("--write", "make programs on this adapter do without the parts that are wrong")
    options.flag("--no-timing", "measure no rates")
    options.device()
    options.json()
    add_examples(
        parser,
        "pteron doctor                  # the kernels of common operators, beside stored float64 answers",
        "pteron doctor model.pte        # the kernels of a program, beside float64 PyTorch",
        "pteron doctor --write          # use simpler kernels on this adapter from now on",
        "pteron doctor --json           # a report to send",
    )


def command(arguments: argparse.Namespace) -> int:
    from pteron.tools.doctor import doctor
    from pteron.tools.doctor.report import doctor_lines

    is_given = arguments.model is not None or arguments.model_option is not None
    with show_progress() as progress:
        report = doctor(
            find_program(arguments) if is_given else None,
            data=arguments.data,
            device=arguments.device,
            write=arguments.write,
            timing=not arguments.no_timing,
            progress=progress,
        )
    print_result(report, doctor_lines(report), as_json=arguments.json)
    return 0 if report.is_healthy else 1
