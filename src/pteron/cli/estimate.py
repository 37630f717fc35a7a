"""pteron estimate: does a program fit into a GPU's memory, and how fast would it run?"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from pteron.cli.arguments import Options, add_examples, count, positive
from pteron.cli.named_model import find_program_file, given_model
from pteron.cli.terminal import print_result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options = Options(parser)
    options.model()
    options.data()
    options.repeatable("--gpu", "NAME", "GPU of the table, by part of its name", default="all of them")
    options.flag("--here", "this machine's adapter, with rates that are measured on it")
    options.add("--method", "NAME", "method to call (default: forward, or the only one)")
    options.repeatable("--prefill", "N", "tokens of a prompt of a language model", positive, "512")
    options.repeatable("--decode", "N", "tokens in the KV cache at a decode step", count, "100")
    options.dims("live size to plan for")
    options.device()
    options.json()
    parser.set_defaults(fail=parser.error)
    add_examples(
        parser,
        "pteron estimate folder                      # a language model on every GPU of the table",
        "pteron estimate model.pte --gpu 4060        # on one of them",
        "pteron estimate folder --prefill 128 --decode 1000 --gpu h200",
        "pteron estimate model.pte --here            # on this machine's adapter",
    )


def command(arguments: argparse.Namespace) -> int:
    from pteron.tools.estimate import estimate, find_gpus
    from pteron.tools.estimate.report import estimate_lines

    if arguments.device and not arguments.here:
        arguments.fail("--device needs --here; --gpu names a GPU of the table")
    path, given = find_program_file(arguments), given_model(arguments)
    gpus = [gpu for name in arguments.gpu for gpu in find_gpus(name)]
    if arguments.here:
        from pteron.tools.estimate.gpus import this_gpu

        gpus.append(this_gpu(arguments.device))
    report = estimate(
        path,
        gpus or None,
        data=arguments.data,
        method=arguments.method,
        prefill=arguments.prefill,
        decode=arguments.decode,
        sizes=arguments.dim,
    )
    report = replace(report, program=Path(given).absolute().name)  # programs of models are called model.pte
    print_result(report, estimate_lines(report), as_json=arguments.json)
    return 0
