"""A kernel whose text was changed for the worse, for as long as a test needs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from pteron.wgsl import link, module
from pteron.wgsl.link import Linked


@contextmanager
def broken(kernel: str, right: str, wrong: str) -> Iterator[None]:
    """Let kernels of one file, libraries included, be composed of another text."""
    linked = link.linked

    def linked_broken(package: str, name: str, *choice: Any) -> Linked:
        files = linked(package, name, *choice)
        if name != kernel:
            return files
        assert right in files.text, f"{kernel} has no {right!r}"
        return replace(files, text=files.text.replace(right, wrong))

    with mock.patch.object(module, "linked", linked_broken):
        _forget()
        try:
            yield
        finally:
            _forget()


def _forget() -> None:
    module.outline.cache_clear()
    module.compose.cache_clear()
