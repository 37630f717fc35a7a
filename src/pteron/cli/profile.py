"""pteron profile: where the time of a call goes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pteron.cli.arguments import (
    add_adapter,
    add_call,
    add_dims,
    add_json,
    add_program,
    count,
    examples,
    positive,
)
from pteron.cli.progress import shown
from pteron.cli.terminal import show
from pteron.errors import InputError

if TYPE_CHECKING:
    from pteron.tools.workload import Workload

TIMINGS = ("auto", "stamps", "passes", "wall")
GROUPINGS = ("launch", "node", "operator", "family", "layer", "kernel")
CONTEXT = 100  # tokens before a decode step, by default


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_program(parser, "a program (.pte), or a language model's folder")
    add_call(parser)
    add_dims(parser, "live size of random inputs")
    step = parser.add_argument_group("steps of language models")
    step.add_argument("--prompt-tokens", metavar="N", type=positive, help="read N tokens at once")
    step.add_argument("--decode", action="store_true", help="read one token (default for folders)")
    step.add_argument(
        "--context", metavar="N", type=count, help=f"tokens before that one (default: {CONTEXT})"
    )
    parser.add_argument("--runs", metavar="N", type=positive, default=20, help="that count (default: 20)")
    parser.add_argument("--warmup", metavar="N", type=count, default=3, help="runs before them (default: 3)")
    parser.add_argument(
        "--timing",
        choices=TIMINGS,
        default="auto",
        help="timestamps inside one pass, of a pass for each launch, or the host's clock "
        "(default: auto, the first that the adapter can)",
    )
    parser.add_argument("--by", choices=GROUPINGS, default="node", help="rows of the table (default: node)")
    parser.add_argument("--top", metavar="N", type=positive, help="only the N longest rows (default: all)")
    parser.add_argument("--remeasure", action="store_true", help="measure the adapter's ceilings again")
    parser.add_argument("--trace", metavar="FILE", help="write a trace for Perfetto (ui.perfetto.dev)")
    parser.add_argument("--html", metavar="FILE", help="write a page with a timeline and bars")
    add_adapter(parser)
    add_json(parser)
    examples(
        parser,
        "pteron profile model.pte --dim 0.0=4         # a method with random inputs, its first dim 4",
        "pteron profile folder --prompt-tokens 128    # a language model that reads 128 tokens",
        "pteron profile folder --decode --by layer    # one more token behind 100 others",
        "pteron profile model.pte --html profile.html --trace profile.json",
    )


def command(arguments: argparse.Namespace) -> int:
    from pteron.tools.profile import profile
    from pteron.tools.profile.export import page_text, trace_text
    from pteron.tools.profile.text import profile_lines
    from pteron.tools.text import json_text

    files = [path for path in (arguments.trace, arguments.html) if path]
    for path in files:
        check_place(path)
    with shown() as progress:
        report = profile(
            arguments.program,
            work_of(arguments),
            data=arguments.data,
            device=arguments.adapter,
            runs=arguments.runs,
            warmup=arguments.warmup,
            timing=arguments.timing,
            remeasure=arguments.remeasure,
            progress=progress,
        )
    if arguments.trace:
        Path(arguments.trace).write_text(trace_text(report), encoding="utf-8")
    if arguments.html:
        Path(arguments.html).write_text(page_text(report), encoding="utf-8")
    if arguments.json:
        print(json_text(report))
        return 0
    show(profile_lines(report, arguments.by, arguments.top))
    for path in files:
        print(f"wrote {path}")
    return 0


def work_of(arguments: argparse.Namespace) -> Workload:
    """What the arguments ask for."""
    from pteron.tools.inputs import read_inputs
    from pteron.tools.run import Selection
    from pteron.tools.workload import Decode, Prefill

    if arguments.context is not None and not arguments.decode:
        raise InputError("--context says where --decode is, which is missing")
    if arguments.prompt_tokens is not None and arguments.decode:
        raise InputError("--prompt-tokens and --decode are two profiles; ask for one of them")
    if arguments.prompt_tokens is not None:
        return Prefill(arguments.prompt_tokens)
    chosen = arguments.method or arguments.input or arguments.dim
    if arguments.decode or (Path(arguments.program).is_dir() and not chosen):
        return Decode(CONTEXT if arguments.context is None else arguments.context)
    return Selection(arguments.method, read_inputs(arguments.input), arguments.dim, arguments.seed)


def check_place(path: str) -> None:
    """Refuse a file that cannot be written before anything is measured for it."""
    place = Path(path)
    if place.is_dir() or not place.absolute().parent.is_dir():
        raise InputError(
            f"{path} cannot be written: {'it is a folder' if place.is_dir() else 'no such folder'}"
        )
