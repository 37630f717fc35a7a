"""pteron compare: the first node whose output departs from a reference."""

from __future__ import annotations

import argparse
from typing import cast

from pteron.cli.arguments import add_adapter, add_call, add_dims, add_json, add_program, count, examples
from pteron.cli.progress import shown
from pteron.cli.terminal import show
from pteron.tools.compare.reference import FORMS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_program(parser, "a program (.pte, .bpte), or a folder made by `pteron export llm`")
    parser.add_argument(
        "--reference",
        metavar="KIND",
        default="float64",
        help=f"what to compare with: {', '.join(FORMS)} (default: float64)",
    )
    add_call(parser)
    add_dims(parser, "live size of random inputs")
    parser.add_argument(
        "--tokens", metavar="IDS", type=token_ids, default=[], help="of a language model's prompt: 1,5,9"
    )
    parser.add_argument(
        "--steps", metavar="N", type=count, default=0, help="decode steps after the tokens (default: 0)"
    )
    parser.add_argument(
        "--tolerance",
        metavar="T",
        action="append",
        default=[],
        help="1e-3 for all floats, sums=1e-3 for one kind of operators; repeatable (docs/compare.md)",
    )
    parser.add_argument(
        "--each-node", action="store_true", help="run every node alone, without rewrites and joins"
    )
    parser.add_argument("--save", metavar="FOLDER", help="write the first departure there, to run it again")
    parser.add_argument("--in-order", action="store_true", help="rows as nodes ran (default: worst first)")
    parser.add_argument("--all", action="store_true", help="all rows (default: the first twenty)")
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a node was not checked")
    add_adapter(parser)
    add_json(parser)
    examples(
        parser,
        "pteron compare model.pte                          # each node beside float64 PyTorch",
        "pteron compare model.pte --dim 7 --input x.npy    # at live sizes, with given inputs",
        "pteron compare folder --tokens 1,5,9 --steps 2    # a language model: a prompt, two decode steps",
        "pteron compare model.pte --reference rewrites     # what rewrites make, each by its name",
        "pteron compare model.pte --save report            # the first departure's inputs, to run it again",
        "",
        "The exit code is 0 where nothing departs, 1 where something does, or (--strict) was not checked.",
    )


def command(arguments: argparse.Namespace) -> int:
    from pteron.tools.compare import Tolerances, compare
    from pteron.tools.compare.text import ROWS, compare_lines
    from pteron.tools.inputs import read_inputs
    from pteron.tools.text import json_text, plain

    tolerances = Tolerances.of(arguments.tolerance)
    inputs = read_inputs(arguments.input)
    with shown() as progress:
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
        show(compare_lines(report, in_order=arguments.in_order, rows=rows))
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
