"""MODEL, the first argument of many commands -> the model on this machine. A bar is shown while it is
downloaded or built."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pteron.errors import InputError

if TYPE_CHECKING:
    from pteron.names.kinds import Located


def given_model(arguments: argparse.Namespace) -> str:
    """MODEL, or the value of --model."""
    names = [name for name in (arguments.model, arguments.model_option) if name]
    if len(names) == 2:
        raise InputError(f"two models were given, {names[0]} and --model {names[1]}: name one")
    if not names:
        raise InputError(
            "name one model: a program, a folder, a GGUF file, a built-in one such as smollm2, or owner/name"
        )
    return str(names[0])


def find_program(arguments: argparse.Namespace) -> str:
    """The program of MODEL: a file or a folder."""
    return str(_find(arguments).path)


def find_program_file(arguments: argparse.Namespace) -> Path:
    """The program of MODEL, as one file."""
    return _find(arguments).program


def _find(arguments: argparse.Namespace) -> Located:
    """The program of MODEL. --data becomes paths: of the files given, or of the one that a hub has with the
    program."""
    from pteron.names.locate import weight_files

    found = find_given(given_model(arguments))
    arguments.data = [*map(str, weight_files(arguments.data or found.data))]
    return found


def find_given(given: str) -> Located:
    """The program of a path or a name. The loader says what is wrong with a file that should be a program."""
    from pteron.names.kinds import Located
    from pteron.names.locate import is_program_file

    return Located("program", Path(given), Path(given).name) if is_program_file(given) else find_model(given)


def find_model(given: str, context: int | None = None) -> Located:
    """The program of a model, with its name; `context` is the number of tokens that it must allow."""
    from pteron.cli.progress import model_progress
    from pteron.llm.names.model_names import locate_program

    with model_progress() as report:
        return locate_program(given, report, context)
