"""pteron compare: the first node whose output differs from a reference."""

from __future__ import annotations

import argparse
from dataclasses import fields

from pteron.cli.arguments import Options, add_examples, count, selection
from pteron.cli.named_model import find_program
from pteron.cli.progress import show_progress
from pteron.cli.terminal import print_result
from pteron.errors import InputError

FORMS = "float64, adapter=NAME, route=software, route=hardware, rewrites, program=FILE"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options = Options(parser)
    options.model("; also a bundled program (.bpte)")
    options.data()
    options.add("--reference", "KIND", f"what to compare with: {FORMS}", default="float64")
    options.call()
    options.dims("live size of random inputs")
    parser.add_argument(
        "--tokens", metavar="IDS", type=token_ids, default=[], help="prompt of a language model: 1,5,9"
    )
    options.add("--steps", "N", "decode steps after the prompt", count, 0)
    tolerance = "1e-3 for all floats, sums=1e-3 for one class of operators; see docs/compare.md"
    options.repeatable("--tolerance", "T", tolerance)
    options.flag("--each-node", "run every node alone, without rewrites and joins")
    options.add("--save", "FOLDER", "write the first difference to FOLDER, to reproduce it")
    options.flag("--in-order", "print rows in execution order (default: worst first)")
    options.flag("--all", "print all rows (default: the first twenty)")
    options.flag("--strict", "exit with 1 if a node was not checked")
    options.precision()
    options.device()
    options.json()
    add_examples(
        parser,
        "pteron compare model.pte                          # each node against float64 PyTorch",
        "pteron compare model.pte --dim 7 --input x.npy    # at live sizes, with given inputs",
        "pteron compare folder --tokens 1,5,9 --steps 2    # a language model: a prompt, two decode steps",
        "pteron compare model.pte --reference rewrites     # with and without each rewrite",
        "pteron compare bad.pte --reference program=good.pte  # the first node that differs",
        "pteron compare model.pte --save report            # save the inputs of the first difference",
        "",
        "Exit code: 0 if nothing differs, 1 if a node differs or (--strict) was not checked.",
    )


def command(arguments: argparse.Namespace) -> int:
    from pteron.tools.compare import Prompt, Tolerances, compare
    from pteron.tools.compare.report import ROWS, compare_lines

    tolerances = Tolerances.of(arguments.tolerance)
    if arguments.tokens and (arguments.input or arguments.dim):
        raise InputError("--tokens cannot be combined with --input or --dim")
    if arguments.steps and not arguments.tokens:
        raise InputError("--steps needs --tokens: decode steps follow a prompt")
    prompt = Prompt(arguments.tokens, arguments.steps, arguments.method)
    work = prompt if arguments.tokens else selection(arguments)
    program = find_program(arguments)
    with show_progress() as progress:
        report = compare(
            program,
            work,
            reference=arguments.reference,
            tolerances=tolerances,
            each_node=arguments.each_node,
            save_to=arguments.save,
            data=arguments.data,
            device=arguments.device,
            digits=arguments.digits,
            products=arguments.products,
            progress=progress,
        )
    lines = compare_lines(report, in_order=arguments.in_order, rows=None if arguments.all else ROWS)
    shown = {field.name: getattr(report, field.name) for field in fields(report)}
    print_result({**shown, "is_right": report.is_right}, lines, as_json=arguments.json)
    is_incomplete = arguments.strict and (report.unchecked or report.host_operators)
    return 0 if report.is_right and not is_incomplete else 1


def token_ids(text: str) -> list[int]:
    """`1,5,9`."""
    try:
        ids = [int(word) for word in text.split(",")]
    except ValueError:
        ids = [-1]
    if min(ids) < 0:
        raise argparse.ArgumentTypeError(f"expected token ids such as 1,5,9, not {text!r}")
    return ids
