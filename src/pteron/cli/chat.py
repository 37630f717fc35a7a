"""pteron chat: a conversation in the terminal."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from pteron.cli.language import add_language_arguments, open_model, sampling, show, show_figures


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_language_arguments(parser, max_new_tokens=512)
    parser.add_argument("--system", metavar="TEXT", help="what the model should know or be")
    parser.add_argument(
        "--prompt", metavar="TEXT", action="append", help="say this and end (repeatable: turns)"
    )


def command(arguments: argparse.Namespace) -> int:
    opening = [{"role": "system", "content": arguments.system}] if arguments.system else []
    with open_model(arguments) as llm:
        messages = list(opening)
        said = iter(arguments.prompt) if arguments.prompt else _typed()
        for text in said:
            if text.strip() == "/reset":
                messages = list(opening)
                llm.reset()
                continue
            messages.append({"role": "user", "content": text})
            pieces = llm.chat(
                messages,
                max_new_tokens=arguments.max_new_tokens,
                sampling=sampling(arguments),
                stop=arguments.stop,
                overflow="truncate",
            )
            messages.append({"role": "assistant", "content": show(pieces)})
            if not arguments.quiet:
                show_figures(llm)
    return 0


def _typed() -> Iterator[str]:
    """Lines from the terminal until its end; Ctrl-C at the prompt ends too."""
    interactive = sys.stdin.isatty()
    if interactive:
        print("Type a message; /reset forgets the conversation, Ctrl-D ends it.", file=sys.stderr)
    while True:
        try:
            text = input("> " if interactive else "")
        except (EOFError, KeyboardInterrupt):
            return
        if text.strip():
            yield text
