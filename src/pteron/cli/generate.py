"""pteron generate: continue a text."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pteron.cli import INTERRUPTED
from pteron.cli.arguments import add_examples, add_json
from pteron.cli.llm_arguments import (
    add_grammar,
    add_llm_arguments,
    build_grammar,
    build_sampling,
    is_interactive,
    open_model,
    print_finish_reason,
    print_statistics,
    print_stream,
    warn_unused_options,
)
from pteron.errors import InputError

if TYPE_CHECKING:
    from pteron.llm import Piece, Sampling, Statistics


@dataclass(frozen=True, slots=True)
class TextReport:
    """The output of --json."""

    prompt: str
    text: str
    device: str
    sampling: Sampling
    tokens: list[Piece]
    statistics: Statistics


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prompt", metavar="TEXT", help="the text to continue (default: standard input)")
    parser.add_argument(
        "--overflow",
        choices=["error", "truncate"],
        default="error",
        help="what to do with a prompt longer than the context: fail, or drop its oldest tokens "
        "(default: %(default)s)",
    )
    add_llm_arguments(parser, max_new_tokens=200)
    add_grammar(parser)
    add_json(parser)
    add_examples(
        parser,
        'pteron generate --model stories15m --prompt "Once upon a time"',
        'pteron generate folder --prompt "The cat" --temperature 0.8 --top-p 0.9 --seed 1',
        "pteron generate folder --json < prompt.txt",
        'pteron generate folder --prompt "The capital of France is " --regex "[A-Z][a-z]+"',
    )


def command(arguments: argparse.Namespace) -> int:
    prompt = arguments.prompt
    if prompt is None:
        if is_interactive():
            raise InputError("give a text with --prompt, or on standard input")
        prompt = sys.stdin.read()
    with open_model(arguments) as llm:
        sampling = build_sampling(arguments, llm)
        warn_unused_options(arguments, sampling)
        pieces = llm.generate(
            prompt,
            max_new_tokens=arguments.max_new_tokens,
            sampling=sampling,
            stop=arguments.stop,
            overflow=arguments.overflow,
            grammar=build_grammar(arguments, llm),
        )
        if arguments.json:
            from pteron.tools.text import json_text

            tokens = list(pieces)
            text = "".join(piece.text for piece in tokens)
            device = str(llm.model.device.adapter)
            print(json_text(TextReport(prompt, text, device, sampling, tokens, llm.statistics)))
            return 0
        printed = print_stream(pieces, prompt)
        if not arguments.quiet:
            print_finish_reason(llm, "export with a larger --max-context-len")
            print_statistics(llm)
    return INTERRUPTED if printed.is_interrupted else 0
