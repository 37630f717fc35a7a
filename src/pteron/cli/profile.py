"""pteron profile: where the time of a call goes."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from pteron.cli.arguments import Options, add_examples, count, positive, selection
from pteron.cli.named_model import find_program
from pteron.cli.progress import show_progress
from pteron.cli.terminal import print_result
from pteron.errors import InputError

if TYPE_CHECKING:
    from pteron.tools.workload import Workload

TIMINGS = ("auto", "stamps", "passes", "wall")
GROUPINGS = ("launch", "node", "operator", "family", "layer", "kernel")
CONTEXT = 100  # default number of tokens in the cache before a decode step


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options = Options(parser)
    options.model()
    options.data()
    options.call()
    options.dims("live size of random inputs")
    step = options.group("steps of language models")
    step.add("--prompt-tokens", "N", "profile the prefill of N tokens", positive)
    step.flag("--decode", "profile the decode step of one token (default for folders)")
    step.add("--context", "N", f"tokens in the cache before --decode (default: {CONTEXT})", count)
    options.add("--runs", "N", "measured runs", positive, 20)
    options.add("--warmup", "N", "runs before the measured ones", count, 3)
    parser.add_argument(
        "--timing",
        choices=TIMINGS,
        default="auto",
        help="stamps: GPU timestamps between the launches of one pass; passes: timestamps of one pass per "
        "launch; wall: the host's clock (default: auto, the first that the GPU supports)",
    )
    options.choice("--by", GROUPINGS, "node", "rows of the table")
    options.add("--top", "N", "only the N slowest rows (default: all)", positive)
    options.flag("--remeasure", "measure the GPU's peak speeds again")
    options.add("--trace", "FILE", "write a trace for Perfetto (ui.perfetto.dev)")
    options.add("--html", "FILE", "write a page with a timeline and bars")
    options.precision()
    options.device()
    options.json()
    add_examples(
        parser,
        "pteron profile model.pte --dim 0.0=4         # a method with random inputs, the first dim is 4",
        "pteron profile folder --prompt-tokens 128    # a language model: prefill of 128 tokens",
        "pteron profile folder --decode --by layer    # a decode step after 100 tokens",
        "pteron profile model.pte --html profile.html --trace profile.json",
    )


def command(arguments: argparse.Namespace) -> int:
    from pteron.tools.profile import profile
    from pteron.tools.profile.report import profile_lines
    from pteron.tools.profile.text import page_text, trace_text

    files = [path for path in (arguments.trace, arguments.html) if path]
    for path in files:
        check_writable(path)
    arguments.program = find_program(arguments)
    with show_progress() as progress:
        report = profile(
            arguments.program,
            _select_work(arguments),
            data=arguments.data,
            device=arguments.device,
            digits=arguments.digits,
            products=arguments.products,
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
    lines = [*profile_lines(report, arguments.by, arguments.top), *(f"wrote {path}" for path in files)]
    print_result(report, lines, as_json=arguments.json)
    return 0


def _select_work(arguments: argparse.Namespace) -> Workload:
    from pteron.tools.workload import Decode, Prefill

    if arguments.context is not None and not arguments.decode:
        raise InputError("--context needs --decode")
    if arguments.prompt_tokens is not None and arguments.decode:
        raise InputError("--prompt-tokens and --decode are two profiles; choose one of them")
    if arguments.prompt_tokens is not None:
        return Prefill(arguments.prompt_tokens)
    selected = arguments.method or arguments.input or arguments.dim
    if arguments.decode or (Path(arguments.program).is_dir() and not selected):
        return Decode(CONTEXT if arguments.context is None else arguments.context)
    return selection(arguments)


def check_writable(path: str) -> None:
    """Fail before the measurement where its result could not be written."""
    file = Path(path)
    folder = file.absolute().parent
    if file.is_dir() or not folder.is_dir():
        why = "it is a folder" if file.is_dir() else "no such folder"
        raise InputError(f"{path} cannot be written: {why}")
    if not os.access(file if file.exists() else folder, os.W_OK):
        raise InputError(f"{path} cannot be written: permission denied")
