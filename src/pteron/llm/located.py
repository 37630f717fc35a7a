"""Where a model is: a path, or a name that the catalogue knows."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from pteron.errors import InputError
from pteron.llm.catalogue import fetch, names
from pteron.llm.given import existing, path_of
from pteron.llm.settings import is_there


def located(given: str | os.PathLike[str], fetched: Callable[[str], Path] | None = None) -> Path:
    """What is at a path, or the folder of the model that has such a name; what is there comes first.
    `fetched` brings a model by its name, and shows how far it is; by default that goes to the log."""
    path = path_of(given)
    if isinstance(given, str) and given in names() and not is_there(path):
        return fetched(given) if fetched else fetch(given, logging.getLogger(__name__).info)
    try:
        return existing(path)
    except InputError as error:
        if len(path.parts) > 1 or path.suffix:  # nobody's name
            raise
        raise InputError(
            f"{error}, and no model is called {str(path)!r}: known are {', '.join(names())}"
        ) from error
