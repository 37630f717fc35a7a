"""Follows a sequence through a grammar: which tokens may come next, and whether it may end."""

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
    """Turn any error of llguidance into an InputError: grammars come from callers."""
    try:
        with as_format_error(what):
            yield
    except FormatError as error:
        raise InputError(str(error)) from error


class Matcher:
    """The state of one sequence. `mask` gives the allowed next tokens, `take` appends a token."""

    def __init__(self, matcher: Any, eos_ids: frozenset[int]) -> None:
        self._matcher = matcher
        self._eos_ids = eos_ids
        self._is_ended = False

    def mask(self) -> npt.NDArray[np.uint32]:
        """A bit per token, the lowest bit of a word first; 1 is allowed. EOS tokens are allowed where the
        text may end."""
        with as_input_error("the grammar failed"):
            words = np.frombuffer(self._matcher.compute_bitmask(), np.uint32)
        self._check()
        return words

    def take(self, token: int) -> None:
        """Append a token. A token that the grammar does not allow is an InputError."""
        with as_input_error("the grammar failed"):
            was_taken = self._matcher.consume_token(token)
        if not was_taken:
            self._check()
            raise InputError(
                f"the grammar does not allow token {token}; logit biases or NaN logits left no allowed token"
            )
        self._is_ended |= token in self._eos_ids

    @property
    def is_finished(self) -> bool:
        """Whether the text is complete and nothing can follow it."""
        return self._is_ended or bool(self._matcher.is_stopped())

    @property
    def may_end(self) -> bool:
        """Whether the text is complete."""
        return self._is_ended or bool(self._matcher.is_accepting())

    def _check(self) -> None:
        error = self._matcher.get_error()
        if error:
            raise InputError(f"the grammar failed: {first_line(error)}")


def first_line(error: str) -> str:
    """A message of llguidance without the dump of grammar and state that follows it."""
    return error.strip().partition("\n")[0].partition("<non-verbose")[0].strip()[:400]
