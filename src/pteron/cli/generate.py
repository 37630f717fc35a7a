"""pteron generate: continue a text."""

from __future__ import annotations

import argparse
import sys

from pteron.cli.language import add_language_arguments, open_model, sampling, show, show_figures
from pteron.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_language_arguments(parser, max_new_tokens=200)
    parser.add_argument("--prompt", metavar="TEXT", help="the text to continue (default: standard input)")


def command(arguments: argparse.Namespace) -> int:
    prompt = arguments.prompt
    if prompt is None:
        if sys.stdin.isatty():
            raise InputError("give a text with --prompt, or on standard input")
        prompt = sys.stdin.read()
    with open_model(arguments) as llm:
        pieces = llm.generate(
            prompt,
            max_new_tokens=arguments.max_new_tokens,
            sampling=sampling(arguments),
            stop=arguments.stop,
        )
        print(prompt, end="", flush=True)
        show(pieces)
        if not arguments.quiet:
            show_figures(llm)
    return 0
