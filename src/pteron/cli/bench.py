"""pteron bench: latency and throughput, and whether they got worse."""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from pteron.cli.arguments import Options, add_examples, count, live_size, number, positive
from pteron.cli.llm_arguments import add_cache_type
from pteron.cli.named_model import find_program, given_model
from pteron.cli.profile import CONTEXT, check_writable
from pteron.cli.progress import show_progress
from pteron.cli.terminal import print_report
from pteron.errors import InputError

if TYPE_CHECKING:
    from pteron.tools.bench import Bench
    from pteron.tools.inputs import LiveSize
    from pteron.tools.workload import Workload


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options = Options(parser)
    options.model("; also a saved result (.json)")
    options.data()
    options.call()
    sizes = "live sizes of one case, separated by commas: 0.1=7,1.0=3"
    options.repeatable("--dim", "SIZES", sizes, live_sizes)
    step = options.group("language models (default for folders: one prefill, one decode)")
    step.repeatable("--prompt-tokens", "N", "measure the prefill of N tokens", positive)
    step.flag("--decode", "measure decoding, one token after the other")
    step.repeatable("--context", "N", "tokens in the cache before --decode", count, str(CONTEXT))
    step.add("--tokens", "N", "tokens of one decode sample", positive, 32)
    add_cache_type(step)
    step.add("--perplexity", "TEXT", "measure how well it predicts a text file, instead of its speed")
    options.add("--runs", "N", "samples of each case", positive, 50)
    options.add("--seconds", "S", "time limit of each case, which may cut its samples", number(0), 10.0)
    options.add("--warmup", "N", "runs before the samples", positive, 5)
    options.precision(several=True)
    options.repeatable("--device", "NAME", "GPU, as in `pteron run`; several are compared")
    options.add("--json", "FILE", "save the result, with all samples")
    options.add("--against", "OLD.json", "compare with a saved result")
    options.add("--tolerance", "PART", "slowdown that is not reported: 0.05 is 5 percent", number(0), 0.05)
    add_examples(
        parser,
        "pteron bench model.pte --dim 1 --dim 8               # a method at two live sizes",
        "pteron bench folder --prompt-tokens 128 --decode     # a language model: prefill and decode",
        "pteron bench folder --perplexity text.txt            # its quality",
        "pteron bench model.pte --device llvmpipe --device nvidia",
        "pteron bench model.pte --products f32 --products f16 # exact and faster products on matrix cores",
        "pteron bench model.pte --json old.json               # save the result,",
        "pteron bench model.pte --against old.json            # compare with it later (exit code 1: slower),",
        "pteron bench --against old.json new.json             # or compare two saved results",
    )


def command(arguments: argparse.Namespace) -> int:
    from pteron.tools.bench import Bench, judge
    from pteron.tools.bench.report import bench_lines, judgement_lines

    if arguments.perplexity:
        return _measure_perplexity(arguments)
    if arguments.json:
        check_writable(arguments.json)
    old = Bench.read(arguments.against) if arguments.against else None
    given = given_model(arguments)
    is_saved = given.endswith(".json")
    if is_saved:
        if old is None:
            raise InputError(f"{given} is a saved result; name the older one with --against")
        new = Bench.read(given)
    else:
        new = _measure(arguments)
        if arguments.json:
            new.save(arguments.json)
        print_report(bench_lines(new))
    if old is None:
        return 0
    judgement = judge(old, new, arguments.tolerance)
    if not is_saved:
        print()
    print_report(judgement_lines(judgement, arguments.tolerance))
    return 1 if judgement.is_worse else 0


def _measure_perplexity(arguments: argparse.Namespace) -> int:
    from pteron.folders import existing
    from pteron.llm.load_options import LoadOptions
    from pteron.llm.text_model import TextModel
    from pteron.tools.perplexity import measure_perplexity
    from pteron.tools.run import place_of

    file, program = existing(arguments.perplexity), find_program(arguments)
    options = LoadOptions(cache=arguments.cache, data=arguments.data, digits=arguments.digits)
    for device, products in product(arguments.device or [None], dict.fromkeys(arguments.products) or [None]):
        options = replace(options, device=device, products=products)
        with show_progress() as progress, TextModel(program, options) as llm:
            found = measure_perplexity(llm, file, progress)
            print_report(
                [
                    f"perplexity {found.value:.3f}, {found.bits_per_byte:.3f} bits per byte: {found.tokens} "
                    f"tokens of {file.name} in {found.seconds:.1f} s on {place_of(llm.program)}"
                ]
            )
    return 0


def live_sizes(text: str) -> list[LiveSize]:
    """`7`, or `0.1=7,1.0=3`."""
    return [live_size(part) for part in text.split(",")]


def _measure(arguments: argparse.Namespace) -> Bench:
    from pteron.tools.bench import Bench, Pace, bench

    arguments.program = find_program(arguments)
    works = _select_works(arguments)
    with show_progress() as progress:
        measured = [
            bench(
                arguments.program,
                works,
                data=arguments.data,
                devices=arguments.device or [None],
                pace=Pace(arguments.runs, arguments.seconds, arguments.warmup, arguments.tokens),
                digits=arguments.digits,
                products=products,
                progress=progress,
                cache=arguments.cache,
            )
            for products in dict.fromkeys(arguments.products) or [None]
        ]
    return Bench(tuple(case for each in measured for case in each.cases))


def _select_works(arguments: argparse.Namespace) -> list[Workload]:
    from pteron.tools.inputs import read_inputs
    from pteron.tools.workload import Decode, Prefill, Selection

    if arguments.context and not arguments.decode:
        raise InputError("--context needs --decode")
    works: list[Workload] = [Prefill(tokens) for tokens in arguments.prompt_tokens]
    if arguments.decode:
        works += [Decode(context) for context in arguments.context or [CONTEXT]]
    selected = arguments.method or arguments.input or arguments.dim
    if selected or not (works or Path(arguments.program).is_dir()):
        inputs = read_inputs(arguments.input)
        works += [
            Selection(arguments.method, inputs, sizes, arguments.seed) for sizes in arguments.dim or [[]]
        ]
    return works
