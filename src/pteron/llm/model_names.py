"""A model's name -> the model on this machine.

    located = locate("owner/name:Q4_K_M", progress=print)   # a program, a checkpoint or a GGUF file
    path = locate_model("smollm2")                          # its program

A name is a path, a built-in model, or a model of a hub: `owner/name`, `owner/name:file.gguf` or
`owner/name:Q4_K_M`, each also with `@revision` before the colon. An existing path wins. What is missing is
downloaded and built.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from pteron.errors import InputError
from pteron.llm import models
from pteron.llm.arguments import existing, path_of
from pteron.llm.counted_line import CountedLine
from pteron.llm.hub.cache import FILE_NAME, HubModel
from pteron.llm.hub.download import download
from pteron.llm.model_kinds import Located, recognise
from pteron.llm.program_cache import BuildOptions, build, longest_contexts

Report = Callable[[str], None]
PROGRAM_SUFFIXES = (".pte", ".bpte", ".ptd")  # of files that are given to the loader as they are
_SIMILARITY = 0.75  # minimum for a misspelled name


def locate(
    given: str | os.PathLike[str], progress: Report = lambda line: None, *, update: bool = False
) -> Located:
    """The model of a name. A hub's model is downloaded if it is not in the cache, and with `update` also if
    it has changed."""
    path = path_of(given)
    if not isinstance(given, str) or path.exists():
        return recognise(existing(path))
    if given in models.names():
        return Located("program", models.fetch(given, progress), given)
    model = HubModel.parse(given)
    if model is not None:
        return replace(recognise(download(model, progress, update=update)), name=str(model))
    if len(path.parts) > 1 or FILE_NAME.search(given):  # cannot be a model's name
        raise InputError(f"{path} does not exist")
    known, near = ", ".join(models.names()), get_close_matches(given, models.names(), 1, _SIMILARITY)
    raise InputError(
        f"{path} does not exist, and no model is called {given!r}: known are {known}, and models of a "
        f"hub as owner/name{f'; did you mean {near[0]}?' if near else ''}"
    )


def locate_program(
    given: str | os.PathLike[str], progress: Report | None = None, context: int | None = None
) -> Located:
    """The program of a model: a file or a folder. A checkpoint or GGUF file is built into a program, once. By
    default, progress is logged.

    A LongRoPE model has other rotary embeddings beyond its original context. For a longer `context`, another
    program is built.
    """
    progress = progress or _log
    located = locate(given, progress)
    if located.kind == "program":
        return located
    folder = build(located, progress=progress)
    longest, rebuilt = longest_contexts(folder)
    if context is not None and longest < rebuilt < context:
        raise InputError(
            f"{located.name}: a context of {context} tokens, but the model's longest is {rebuilt}"
        )
    if context is not None and longest < context <= rebuilt:
        rounded = 1 << (context - 1).bit_length()  # so that few programs serve all contexts
        folder = build(located, BuildOptions(context=min(rounded, rebuilt)), progress)
    return Located("program", folder, located.name)


def locate_model(
    given: str | os.PathLike[str], progress: Report | None = None, context: int | None = None
) -> Path:
    return locate_program(given, progress, context).path


def _log(line: str) -> None:
    if not isinstance(line, CountedLine) or line.done == 0:
        logging.getLogger(__name__).info(line)
