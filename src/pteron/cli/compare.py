"""pteron compare: the first node whose output departs from a reference."""

from __future__ import annotations

import argparse

from pteron.cli.arguments import add_adapter, add_json, add_program
from pteron.cli.progress import shown
from pteron.cli.run import live_size
from pteron.tools.compare import Tolerances, compare
from pteron.tools.compare.choice import FORMS
from pteron.tools.compare.text import ROWS, compare_lines, plain
from pteron.tools.inputs import read_inputs
from pteron.tools.text import json_text

_EXAMPLES = """examples:
  pteron compare model.pte                              each node beside float64 PyTorch, at random inputs
  pteron compare model.pte --dim 7 --input x.npy        at live sizes, with given inputs
  pteron compare folder --tokens 1,5,9 --steps 2        a language model: a prompt, two decode steps
  pteron compare model.pte --reference rewrites         what rewrites make, each by its name
  pteron compare model.pte --save report                the first departure's inputs, to run it again

The exit code is 0 where nothing departs, and 1 where something does, or (--strict) was not checked."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_program(parser, "a program (.pte, .bpte), or a folder made by `pteron export llm`")
    parser.add_argument(
        "--reference",
        metavar="KIND",
        default="float64",
        help=f"what to compare with: {', '.join(FORMS)} (default: float64)",
    )
    parser.add_argument("--method", metavar="NAME", help="default: forward, or the only one")
    parser.add_argument(
        "--input",
        metavar="VALUE",
        action="append",
        default=[],
        help=".npy, .npz or .json file, or a value; repeatable, in the method's order (default: random)",
    )
    parser.add_argument(
        "--dim",
        metavar="SIZE",
        type=live_size,
        action="append",
        default=[],
        help="live size of random inputs: 0.1=7 for dim 1 of input 0, 7 for every dynamic dim; repeatable",
    )
    parser.add_argument("--seed", metavar="N", type=seed, default=0, help="of random inputs (default: 0)")
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
    parser.add_argument("--all", action="store_true", help=f"all rows (default: {ROWS} of them)")
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a node was not checked")
    add_adapter(parser)
    add_json(parser)


def command(arguments: argparse.Namespace) -> int:
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
        print(json_text({**plain(report), "is_right": report.is_right}))
    else:
        rows = None if arguments.all else ROWS
        print("\n".join(compare_lines(report, in_order=arguments.in_order, rows=rows)))
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


def count(text: str) -> int:
    """A number of things: 0 or more."""
    if not text.isascii() or not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a number, 0 or more, not {text!r}")
    return int(text)


seed = count  # NumPy takes no others
