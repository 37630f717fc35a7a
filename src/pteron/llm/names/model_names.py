"""A model's name -> the model on this machine.

    located = locate("owner/name:Q4_K_M", progress=print)   # a program, a checkpoint or a GGUF file
    located = locate_program("smollm2")                     # its program

A name is a path, a built-in model, or a model of a hub: `owner/name`, `owner/name:file.gguf` or
`owner/name:Q4_K_M`, each also with `@revision` before the colon. An existing path wins. What is missing is
downloaded and built.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeAlias

from pteron.errors import InputError
from pteron.folders import path_of
from pteron.format.source import Source
from pteron.llm.names import models
from pteron.llm.names.program_cache import build, longest_contexts
from pteron.names import locate as names
from pteron.names.kinds import Located

Report = Callable[[str], None]
Sources: TypeAlias = Iterable[Source] | Source


def locate(
    given: str | os.PathLike[str], progress: Report = lambda line: None, *, update: bool = False
) -> Located:
    """The model of a name. A hub's model is downloaded if it is not in the cache, and with `update` also if
    it has changed."""
    if given in models.names() and not path_of(given).exists():
        return Located("program", models.fetch(str(given), progress), str(given))
    return names.locate(given, progress, update=update, known=models.names(), check_config=_check_config)


def _check_config(name: str, config: dict[str, Any]) -> None:
    from pteron.llm.export.huggingface import check_config  # here: models in the cache start faster

    check_config(name, config)


def locate_program(
    given: str | os.PathLike[str], progress: Report | None = None, context: int | None = None
) -> Located:
    """The program of a model: a file or a folder; what is located already stays. A checkpoint or GGUF file is
    built into a program, once. By default, progress is logged.

    A LongRoPE model has other rotary embeddings beyond its original context. For a longer `context`, another
    program is built.
    """
    progress = progress or names.log_progress
    # Its folder is read again: a server loads a model that it has located long before.
    located = replace(given) if isinstance(given, Located) else locate(given, progress)
    if located.kind == "program":
        return located
    found = build(located, progress)
    longest, rebuilt = longest_contexts(found.folder)
    if context is not None and longest < rebuilt < context:
        raise InputError(
            f"{located.name}: a context of {context} tokens, but the model's longest is {rebuilt}"
        )
    if context is not None and longest < context <= rebuilt:
        rounded = 1 << (context - 1).bit_length()  # so that few programs serve all contexts
        found = build(located, progress, context=min(rounded, rebuilt))
    return found


def locate_source(source: Source, data: Sources = ()) -> tuple[Source, Sources]:
    """A program's file or a model's folder, with its weight files, from a path or a model's name; bytes stay
    as they are."""
    if not isinstance(source, (str, os.PathLike)) or names.is_program_file(source):
        return source, data
    located = locate_program(source)
    return located.path, data or located.data
