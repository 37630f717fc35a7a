"""pteron run: call a method once or more, or run the test cases of a bundled program."""

from __future__ import annotations

import argparse
from pathlib import Path

from pteron.cli.arguments import Options, add_examples, count, number
from pteron.cli.progress import show_progress
from pteron.cli.terminal import print_result
from pteron.errors import InputError
from pteron.processes import ISOLATED_SECONDS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options = Options(parser)
    options.program("a program (.pte) or a bundled program (.bpte)")
    options.call()
    options.dims("live size of random inputs")
    options.add("--output", "FOLDER", "write the outputs to FOLDER, as output_N.npy")
    options.add("--repeat", "N", "call the method N more times and report the time", count, 0)
    parser.add_argument(
        "--check",
        action=argparse.BooleanOptionalAction,
        help="run the test cases of a bundled program and compare (default: for .bpte without --input)",
    )
    parser.add_argument(
        "--isolated",
        metavar="SECONDS",
        type=number(0),
        nargs="?",
        const=ISOLATED_SECONDS,
        help="run an untrusted program in a separate process, for at most SECONDS (default: %(const)g)",
    )
    options.precision()
    options.device()
    options.json()
    add_examples(
        parser,
        "pteron run model.pte",
        "pteron run model.pte --input x.npy --output results",
        "pteron run model.pte --dim 7 --repeat 20",
        "pteron run model.pte --isolated",
    )


def command(arguments: argparse.Namespace) -> int:
    from pteron.isolated.process import is_isolated, run_isolated
    from pteron.llm.arguments import path_of
    from pteron.runtime import load
    from pteron.tools.inputs import read_inputs
    from pteron.tools.run import Selection, check_bundle, check_lines, place_of, run, run_lines, save_outputs

    given = path_of(arguments.program)
    if not given.exists() and given.suffix not in (".pte", ".bpte"):
        raise InputError(
            f"{given}: there is no such file; a language model by name runs with `pteron chat {given}`"
        )
    if arguments.isolated is not None and not is_isolated():
        return run_isolated(arguments.program, arguments.given, arguments.isolated)
    inputs = read_inputs(arguments.input)
    name = Path(arguments.program).name
    with (
        show_progress(f"loading {name}") as progress,
        load(
            arguments.program,
            arguments.data,
            arguments.device,
            digits=arguments.digits,
            products=arguments.products,
        ) as program,
    ):
        is_checked = arguments.check
        if is_checked is None:
            is_checked = program.bundle is not None and not inputs
        if is_checked:
            cases, device = check_bundle(program, arguments.method), place_of(program)
        else:
            selection = Selection(arguments.method, inputs, arguments.dim, arguments.seed, arguments.repeat)
            report, outputs = run(program, selection, progress)
    if is_checked:
        print_result(cases, check_lines(name, device, cases), as_json=arguments.json)
        return 1 if any(case.problem for case in cases) else 0
    paths = save_outputs(outputs, arguments.output) if arguments.output else []
    lines = [*run_lines(report), *(f"  wrote {path}" for path in paths)]
    print_result(report, lines, as_json=arguments.json)
    return 0
