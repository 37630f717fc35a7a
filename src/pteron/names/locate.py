"""A path or a name of a hub -> the model on this machine; what is missing is downloaded.

located = locate("owner/name:model.pte")              # a program, a checkpoint or a GGUF file
source, data = program_files("owner/name", "w.ptd")   # what the readers of programs take
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches

from pteron.errors import InputError
from pteron.folders import existing, path_of
from pteron.format.source import FileBytes, Source
from pteron.names.cache import FILE_NAME, cached_weights, hub_model
from pteron.names.counted_line import CountedLine
from pteron.names.download import CheckConfig, download
from pteron.names.kinds import Located, recognise

Report = Callable[[str], None]
_SUFFIXES = (".pte", ".bpte", ".ptd")  # of files that are given to the loader as they are
_SIMILARITY = 0.75  # minimum for a misspelled name


def locate(
    given: str | os.PathLike[str],
    progress: Report | None = None,
    *,
    update: bool = False,
    known: Sequence[str] = (),
    check_config: CheckConfig | None = None,
) -> Located:
    """The model of a path or a hub's name. A hub's model is downloaded if it is not in the cache, and with
    `update` also if it has changed. `known` are other names, for the error. Without `check_config`, which
    raises for a checkpoint that cannot be read, only programs are downloaded. By default, progress is
    logged."""
    path = path_of(given)
    if not isinstance(given, str) or path.exists():
        return recognise(existing(path))
    model = hub_model(given)
    if model is not None:
        found = recognise(download(model, progress or log_progress, update=update, check_config=check_config))
        found.name = str(model)
        found.data = cached_weights(model, found.path) if found.kind == "program" else ()
        return found
    if len(path.parts) > 1 or FILE_NAME.search(given):  # cannot be a model's name
        raise InputError(f"{path} does not exist")
    near = get_close_matches(given, known, 1, _SIMILARITY)
    raise InputError(
        f"{path} does not exist, and no model is called {given!r}: known are {', '.join(known)}, and models "
        f"of a hub as owner/name{f'; did you mean {near[0]}?' if near else ''}"
    )


def is_program_file(given: Source) -> bool:
    """Whether a reader of programs takes this as it is: bytes, or a path that says so, even of no file."""
    if not isinstance(given, (str, os.PathLike)):
        return True
    return str(given).endswith(_SUFFIXES) and hub_model(given) is None


def program_files(source: Source, data: Iterable[Source] | Source = ()) -> tuple[Source, list[Source]]:
    """A program and its weight files as their readers take them: paths or bytes, of folders and of names of a
    hub too. Without `data`, a hub's program has the weight file beside it, if there is one only."""
    weights = weight_files(data)
    if isinstance(source, (str, os.PathLike)) and (hub_model(source) or os.path.isdir(source)):
        located = locate(source)
        return located.program, weights or [*located.data]
    return source, weights


def weight_files(data: Iterable[Source] | Source) -> list[Source]:
    """One weight file or several, each by path, as bytes or by its name at a hub."""
    one = (str, os.PathLike, bytes, bytearray, memoryview, FileBytes)
    given = [data] if isinstance(data, one) else data
    return [each if hub_model(each) is None else locate(str(each)).path for each in given]


def log_progress(line: str) -> None:
    if not isinstance(line, CountedLine) or line.done == 0:
        logging.getLogger("pteron.names").info(line)
