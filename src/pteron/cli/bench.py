"""pteron bench: latency and throughput, and whether they got worse."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pteron.cli.arguments import add_call, add_program, count, examples, live_size, number, positive
from pteron.cli.profile import CONTEXT, check_place
from pteron.cli.progress import shown
from pteron.cli.terminal import show
from pteron.errors import InputError

if TYPE_CHECKING:
    from pteron.tools.bench import Bench
    from pteron.tools.inputs import LiveSize
    from pteron.tools.workload import Workload


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_program(parser, "a program (.pte), a language model's folder, or a kept result (.json)")
    add_call(parser)
    parser.add_argument(
        "--dim",
        metavar="SIZES",
        type=live_sizes,
        action="append",
        default=[],
        help="live sizes of a case as in `pteron run`, with commas: 0.1=7,1.0=3; repeatable, for more cases",
    )
    step = parser.add_argument_group("language models (default for folders: a prompt, and decoding)")
    step.add_argument(
        "--prompt-tokens", metavar="N", type=positive, action="append", default=[], help="repeatable"
    )
    step.add_argument("--decode", action="store_true", help="tokens one after the other")
    step.add_argument(
        "--context",
        metavar="N",
        type=count,
        action="append",
        default=[],
        help=f"tokens before those, repeatable (default: {CONTEXT})",
    )
    step.add_argument(
        "--tokens", metavar="N", type=positive, default=32, help="of a decode sample (default: 32)"
    )
    parser.add_argument(
        "--runs", metavar="N", type=positive, default=50, help="samples of a case (default: 50)"
    )
    parser.add_argument(
        "--seconds",
        metavar="S",
        type=number(0),
        default=10.0,
        help="a case takes fewer samples than it would take longer for (default: %(default)s)",
    )
    parser.add_argument(
        "--warmup", metavar="N", type=positive, default=5, help="runs before them (default: 5)"
    )
    parser.add_argument(
        "--adapter",
        metavar="NAME",
        action="append",
        default=[],
        help="an adapter as `pteron run` takes it; repeatable, to see them side by side",
    )
    parser.add_argument("--json", metavar="FILE", help="keep the result, with all samples")
    parser.add_argument("--against", metavar="OLD.json", help="compare with a result that was kept")
    parser.add_argument(
        "--tolerance",
        metavar="PART",
        type=number(0),
        default=0.05,
        help="how much slower is no regression, whatever the noise (default: 0.05)",
    )
    examples(
        parser,
        "pteron bench model.pte --dim 1 --dim 8               # a method at two live sizes",
        "pteron bench folder --prompt-tokens 128 --decode     # a language model that reads, and writes",
        "pteron bench model.pte --adapter llvmpipe --adapter nvidia",
        "pteron bench model.pte --json old.json               # keep the result,",
        "pteron bench model.pte --against old.json            # compare with it later (exit code 1: slower),",
        "pteron bench --against old.json new.json             # or compare two that were kept",
    )


def command(arguments: argparse.Namespace) -> int:
    from pteron.tools.bench import Bench, judge
    from pteron.tools.bench.text import bench_lines, judgement_lines

    if arguments.json:
        check_place(arguments.json)
    old = Bench.read(arguments.against) if arguments.against else None
    if arguments.program.endswith(".json"):
        if old is None:
            raise InputError(f"{arguments.program} is a kept result; --against says what to compare it with")
        new = Bench.read(arguments.program)
    else:
        new = _measured(arguments)
        if arguments.json:
            new.save(arguments.json)
        show(bench_lines(new))
    if old is None:
        return 0
    judgement = judge(old, new, arguments.tolerance)
    if not arguments.program.endswith(".json"):
        print()
    show(judgement_lines(judgement, arguments.tolerance))
    return 1 if judgement.is_worse else 0


def live_sizes(text: str) -> list[LiveSize]:
    """`7`, or `0.1=7,1.0=3`."""
    return [live_size(part) for part in text.split(",")]


def _measured(arguments: argparse.Namespace) -> Bench:
    from pteron.tools.bench import Pace, bench

    pace = Pace(arguments.runs, arguments.seconds, arguments.warmup, arguments.tokens)
    with shown() as progress:
        return bench(
            arguments.program,
            _works(arguments),
            data=arguments.data,
            devices=arguments.adapter or [None],
            pace=pace,
            progress=progress,
        )


def _works(arguments: argparse.Namespace) -> list[Workload]:
    from pteron.tools.inputs import read_inputs
    from pteron.tools.run import Selection
    from pteron.tools.workload import Decode, Prefill

    if arguments.context and not arguments.decode:
        raise InputError("--context says where --decode is, which is missing")
    works: list[Workload] = [Prefill(tokens) for tokens in arguments.prompt_tokens]
    if arguments.decode:
        works += [Decode(context) for context in arguments.context or [CONTEXT]]
    chosen = arguments.method or arguments.input or arguments.dim
    if chosen or not (works or Path(arguments.program).is_dir()):
        inputs = read_inputs(arguments.input)
        works += [
            Selection(arguments.method, inputs, sizes, arguments.seed) for sizes in arguments.dim or [[]]
        ]
    return works
