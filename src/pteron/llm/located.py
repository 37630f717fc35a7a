"""Where a model is: a path, or a name that the catalogue knows."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from pteron.errors import InputError
from pteron.llm.catalogue import fetch, names
from pteron.llm.given import existing, path_of
from pteron.llm.settings import is_there


def located(given: str | os.PathLike[str]) -> Path:
    """What is at a path, or the folder of the model that has such a name; what is there comes first."""
    path = path_of(given)
    if isinstance(given, str) and given in names() and not is_there(path):
        return fetch(given, logging.getLogger(__name__).info)
    try:
        return existing(path)
    except InputError as error:
        if len(path.parts) > 1 or path.suffix:  # nobody's name
            raise
        raise InputError(
            f"{error}, and no model is called {str(path)!r}: known are {', '.join(names())}"
        ) from error
