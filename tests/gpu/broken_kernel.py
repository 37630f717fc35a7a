"""A kernel whose text was changed for the worse, for as long as a test needs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from pteron.wgsl import module


@contextmanager
def broken(kernel: str, right: str, wrong: str) -> Iterator[None]:
    """Let kernels of one file, libraries included, be composed of another text."""
    load = module._load

    def load_broken(package: str, name: str, swapped: tuple[tuple[str, str], ...]) -> str:
        text = load(package, name, swapped)
        if name != kernel:
            return text
        assert right in text, f"{kernel} has no {right!r}"
        return text.replace(right, wrong)

    with mock.patch.object(module, "_load", load_broken):
        _forget()
        try:
            yield
        finally:
            _forget()


def _forget() -> None:
    module.outline.cache_clear()
    module.compose.cache_clear()
