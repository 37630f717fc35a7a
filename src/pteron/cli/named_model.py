"""MODEL, the first argument of many commands -> the model on this machine. A bar is shown while it is
downloaded or built."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pteron.errors import InputError

if TYPE_CHECKING:
    from pteron.llm.model_kinds import Located

_PROGRAM_FILES = (".pte", ".bpte", ".ptd")  # the loader says what is wrong with them


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
    """The program of a model: a file or a folder."""
    given = given_model(arguments)
    return given if given.endswith(_PROGRAM_FILES) else str(find_model(given).path)


def find_program_file(given: str) -> Path:
    """The program of a model, as one file."""
    if given.endswith(_PROGRAM_FILES):
        return Path(given)
    from pteron.llm.model_files import program_file

    found = find_model(given).path
    return program_file(found) if found.is_dir() else found


def find_model(given: str, context: int | None = None) -> Located:
    """The program of a model, with its name; `context` is the number of tokens that it must allow."""
    from pteron.cli.progress import model_progress
    from pteron.llm.model_names import locate_program

    with model_progress() as report:
        return locate_program(given, report, context)
