"""pteron demo: a story, told by a small language model on the GPU."""

from __future__ import annotations

import argparse

from pteron.cli.arguments import add_adapter, examples, positive, seed
from pteron.cli.progress import shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seed", metavar="N", type=seed, default=7, help="another seed, another story (default: %(default)s)"
    )
    parser.add_argument(
        "--max-new-tokens",
        metavar="N",
        type=positive,
        default=160,
        help="how long the story may be (default: %(default)s)",
    )
    add_adapter(parser)
    examples(parser, "pteron demo", "pteron demo --seed 8 --max-new-tokens 60")


def command(arguments: argparse.Namespace) -> int:
    from pteron.tools.demo import demo_text

    story = demo_text(arguments.adapter, arguments.max_new_tokens, arguments.seed)
    try:
        with shown("loading stories15M"):
            opening = next(story)
        print(opening, end="", flush=True)
        for text in story:
            print(text, end="", flush=True)
    finally:
        story.close()
    return 0
