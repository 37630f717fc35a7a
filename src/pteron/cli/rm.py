"""pteron rm: remove models from the cache."""

from __future__ import annotations

import argparse

from pteron.cli.arguments import add_examples


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", nargs="+", help="as `pteron list` prints it")
    add_examples(
        parser,
        "pteron rm smollm2",
        "pteron rm owner/name            # all files and revisions of it, also for other tools",
        "pteron rm owner/name@v1         # this revision only",
        "pteron rm owner/name:Q4_K_M     # one GGUF file",
        "pteron rm model.gguf            # the program built from it; the file itself stays",
    )


def command(arguments: argparse.Namespace) -> int:
    from pteron.llm.names.local_models import find_removable, remove_model
    from pteron.tools.text import human_bytes

    for name in arguments.model:
        find_removable(name)  # raises before anything is removed
    for name in arguments.model:
        print(f"removed {name}: {human_bytes(remove_model(name))}")
    return 0
