"""pteron generate: continue a text."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pteron.cli import INTERRUPTED
from pteron.cli.arguments import add_json, examples
from pteron.cli.language import (
    add_grammar,
    add_language_arguments,
    grammar,
    is_typed,
    note_unheeded,
    open_model,
    sampling,
)
from pteron.cli.output import note_end, note_figures, tell
from pteron.errors import InputError

if TYPE_CHECKING:
    from pteron.llm import Piece, Sampling, Statistics


@dataclass(frozen=True, slots=True)
class TextReport:
    """A text that was generated, token by token, and what it took."""

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
        help="for a prompt past the context: refuse it, or drop its oldest tokens (default: %(default)s)",
    )
    add_language_arguments(parser, max_new_tokens=200)
    add_grammar(parser)
    add_json(parser)
    examples(
        parser,
        'pteron generate --model stories15m --prompt "Once upon a time"',
        'pteron generate folder --prompt "The cat" --temperature 0.8 --top-p 0.9 --seed 1',
        "pteron generate folder --json < prompt.txt",
        'pteron generate folder --prompt "The capital of France is " --regex "[A-Z][a-z]+"',
    )


def command(arguments: argparse.Namespace) -> int:
    prompt = arguments.prompt
    if prompt is None:
        if is_typed():
            raise InputError("give a text with --prompt, or on standard input")
        prompt = sys.stdin.read()
    with open_model(arguments) as llm:
        chosen = sampling(arguments, llm)
        note_unheeded(arguments, chosen)
        pieces = llm.generate(
            prompt,
            max_new_tokens=arguments.max_new_tokens,
            sampling=chosen,
            stop=arguments.stop,
            overflow=arguments.overflow,
            grammar=grammar(arguments, llm),
        )
        if arguments.json:
            from pteron.tools.text import json_text

            tokens = list(pieces)
            text = "".join(piece.text for piece in tokens)
            device = str(llm.model.device.adapter)
            print(json_text(TextReport(prompt, text, device, chosen, tokens, llm.statistics)))
            return 0
        told = tell(pieces, prompt)
        if not arguments.quiet:
            note_end(llm, "`pteron export llm --max-context-len` makes room for more")
            note_figures(llm)
    return INTERRUPTED if told.is_interrupted else 0
