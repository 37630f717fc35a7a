"""Errors of the libraries that read tokenizers, as Pteron's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pteron.errors import FormatError, PteronError


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Let whatever a library raises be a FormatError that begins with `what`.

    Libraries in Rust raise what is no Exception where they meet a case that they took for impossible.
    """
    try:
        yield
    except PteronError:
        raise
    except Exception as error:
        raise FormatError(f"{what}: {error or type(error).__name__}") from error
    except BaseException as error:
        if type(error).__module__ != "pyo3_runtime":
            raise
        raise FormatError(f"{what}: {error}") from error
