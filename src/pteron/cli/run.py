"""pteron run: call a method once or more, or run the test cases of a bundled program."""

from __future__ import annotations

import argparse
from pathlib import Path

from pteron.cli.arguments import add_adapter, add_dims, add_json, add_program
from pteron.isolated.command import is_isolated, run_isolated
from pteron.isolated.program import SECONDS
from pteron.runtime import Program, load
from pteron.tools.inputs import read_inputs
from pteron.tools.run import Selection, check_bundle, run, save_outputs
from pteron.tools.run_text import check_lines, run_lines
from pteron.tools.text import json_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_program(parser, "a program (.pte) or a bundled program (.bpte)")
    parser.add_argument("--method", metavar="NAME", help="default: forward, or the only one")
    parser.add_argument(
        "--input",
        metavar="VALUE",
        action="append",
        default=[],
        help=".npy, .npz or .json file, or a value (3, 2.5, true, [1, 2]); repeatable, in the method's order",
    )
    add_dims(parser, "live size of random inputs")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="of random inputs (default 0)")
    parser.add_argument("--output", metavar="FOLDER", help="write the outputs there, as output_N.npy")
    parser.add_argument(
        "--repeat", metavar="N", type=int, default=0, help="call it N times more, for the time"
    )
    parser.add_argument(
        "--check",
        action=argparse.BooleanOptionalAction,
        help="run the test cases of a bundled program and compare (default for .bpte without --input)",
    )
    parser.add_argument(
        "--isolated",
        metavar="SECONDS",
        type=float,
        nargs="?",
        const=SECONDS,
        help=f"in a process of its own that may take so long (default {SECONDS:g}): for programs not trusted",
    )
    add_adapter(parser)
    add_json(parser)


def command(arguments: argparse.Namespace) -> int:
    if arguments.isolated is not None and not is_isolated():
        return run_isolated(arguments.program, arguments.given, arguments.isolated)
    inputs = read_inputs(arguments.input)
    with load(arguments.program, arguments.data, arguments.adapter) as program:
        check = arguments.check
        if check is None:
            check = program.bundle is not None and not inputs
        if check:
            return _check(program, arguments)
        selection = Selection(arguments.method, inputs, arguments.dim, arguments.seed, arguments.repeat)
        report, outputs = run(program, selection)
    paths = save_outputs(outputs, arguments.output) if arguments.output else []
    if arguments.json:
        print(json_text(report))
        return 0
    print("\n".join(run_lines(report)))
    for path in paths:
        print(f"  wrote {path}")
    return 0


def _check(program: Program, arguments: argparse.Namespace) -> int:
    cases = check_bundle(program, arguments.method)
    name = Path(program.file.name).name
    print(json_text(cases) if arguments.json else "\n".join(check_lines(name, program.device.name, cases)))
    return 1 if any(case.problem for case in cases) else 0
