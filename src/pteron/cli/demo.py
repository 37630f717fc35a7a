"""pteron demo: a story, told by a small language model on the GPU."""

from __future__ import annotations

import argparse

from pteron.cli.arguments import add_adapter
from pteron.tools.demo import TOKENS, demo_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", metavar="N", type=int, default=7, help="another seed, another story")
    parser.add_argument("--max-new-tokens", metavar="N", type=int, default=TOKENS)
    add_adapter(parser)


def command(arguments: argparse.Namespace) -> int:
    for text in demo_text(arguments.adapter, arguments.max_new_tokens, arguments.seed):
        print(text, end="", flush=True)
    return 0
