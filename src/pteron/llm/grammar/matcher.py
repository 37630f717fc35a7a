"""A text that follows a grammar, token by token: what may come next, and whether it has ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.errors import FormatError, InputError
from pteron.llm.model_files import as_format_error


@contextmanager
def as_input_error(what: str) -> Iterator[None]:
    """Let whatever llguidance raises be an InputError: what it met came from a caller."""
    try:
        with as_format_error(what):
            yield
    except FormatError as error:
        raise InputError(str(error)) from error


class Matcher:
    """Follows one text. `mask` says which tokens may come next, `take` that one has come."""

    def __init__(self, followed: Any, eos_ids: frozenset[int]) -> None:
        self._followed = followed
        self._eos_ids = eos_ids
        self._is_ended = False

    def mask(self) -> npt.NDArray[np.uint32]:
        """A bit for each token that may come next, the lowest of a word first. Tokens that end a text are
        among them where the text may end."""
        with as_input_error("the grammar cannot be followed"):
            words = np.frombuffer(self._followed.compute_bitmask(), np.uint32)
        self._check()
        return words

    def take(self, token: int) -> None:
        """A token has come. One that the grammar does not allow is an InputError."""
        with as_input_error("the grammar cannot be followed"):
            was_taken = self._followed.consume_token(token)
        if not was_taken:
            self._check()
            raise InputError(
                f"token {token} does not follow the grammar; it is drawn where biases, or logits that are no "
                "numbers, leave none of those that do"
            )
        self._is_ended |= token in self._eos_ids

    @property
    def is_finished(self) -> bool:
        """Whether the text is whole and nothing can follow it."""
        return self._is_ended or bool(self._followed.is_stopped())

    @property
    def may_end(self) -> bool:
        """Whether the text is whole as it is."""
        return self._is_ended or bool(self._followed.is_accepting())

    def _check(self) -> None:
        error = self._followed.get_error()
        if error:
            raise InputError(f"the grammar cannot be followed further: {first_line(error)}")


def first_line(error: str) -> str:
    """What a message of llguidance says, without the grammar and the state behind it."""
    return error.strip().partition("\n")[0].partition("<non-verbose")[0].strip()[:400]
