"""pteron compare: the first node whose output differs from a reference."""

from __future__ import annotations

import argparse
from typing import cast

from pteron.cli.arguments import (
    add_adapter,
    add_call,
    add_default,
    add_dims,
    add_examples,
    add_json,
    add_program,
    add_repeatable,
    count,
)
from pteron.cli.progress import show_progress
from pteron.cli.terminal import print_report

FORMS = "float64, adapter=NAME, route=software, route=hardware, rewrites, expected, exported=FILE.pt2"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_program(parser, "a program (.pte, .bpte), or a folder made by `pteron export llm`")
    add_default(parser, "--reference", "KIND", str, "float64", f"what to compare with: {FORMS}")
    add_call(parser)
    add_dims(parser, "live size of random inputs")
    parser.add_argument(
        "--tokens", metavar="IDS", type=token_ids, default=[], help="prompt of a language model: 1,5,9"
    )
    add_default(parser, "--steps", "N", count, 0, "decode steps after the prompt")
    add_repeatable(
        parser,
        "--tolerance",
        "T",
        "1e-3 for all floats, sums=1e-3 for one class of operators; see docs/compare.md",
    )
    parser.add_argument(
        "--each-node", action="store_true", help="run every node alone, without rewrites and joins"
    )
    parser.add_argument(
        "--save", metavar="FOLDER", help="write the first difference to FOLDER, to reproduce it"
    )
    parser.add_argument(
        "--in-order", action="store_true", help="print rows in execution order (default: worst first)"
    )
    parser.add_argument("--all", action="store_true", help="print all rows (default: the first twenty)")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a node was not checked")
    add_adapter(parser)
    add_json(parser)
    add_examples(
        parser,
        "pteron compare model.pte                          # each node against float64 PyTorch",
        "pteron compare model.pte --dim 7 --input x.npy    # at live sizes, with given inputs",
        "pteron compare folder --tokens 1,5,9 --steps 2    # a language model: a prompt, two decode steps",
        "pteron compare model.pte --reference rewrites     # with and without each rewrite",
        "pteron compare model.pte --save report            # save the inputs of the first difference",
        "",
        "Exit code: 0 if nothing differs, 1 if a node differs or (--strict) was not checked.",
    )


def command(arguments: argparse.Namespace) -> int:
    from pteron.tools.compare import Tolerances, compare
    from pteron.tools.compare.report import ROWS, compare_lines
    from pteron.tools.inputs import read_inputs
    from pteron.tools.text import json_text, plain

    tolerances = Tolerances.of(arguments.tolerance)
    inputs = read_inputs(arguments.input)
    with show_progress() as progress:
        report = compare(
            arguments.program,
            reference=arguments.reference,
            method=arguments.method,
            inputs=inputs,
            sizes=arguments.dim,
            seed=arguments.seed,
            tokens=arguments.tokens,
            steps=arguments.steps,
            tolerances=tolerances,
            each_node=arguments.each_node,
            save_to=arguments.save,
            data=arguments.data,
            device=arguments.adapter,
            progress=progress,
        )
    if arguments.json:
        plain_report = cast("dict[str, object]", plain(report))
        print(json_text({**plain_report, "is_right": report.is_right}))
    else:
        rows = None if arguments.all else ROWS
        print_report(compare_lines(report, in_order=arguments.in_order, rows=rows))
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
