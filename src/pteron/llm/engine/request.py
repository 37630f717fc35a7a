"""What a user of an engine asks for, checked as far as that goes without a model."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from reprlib import repr as shortened

from pteron.errors import InputError, PteronError
from pteron.llm.arguments import integer, integers, number, strings
from pteron.llm.grammar import Grammar
from pteron.llm.sampling import Sampling


class Busy(PteronError):  # noqa: N818  # as servers say it
    """As many requests wait as an engine lets wait; after so many `seconds` there may be room."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt's tokens, and how they are to be continued.

    `stop` strings and `stop_ids` (None: the model's own) end the answer and are no part of its text. With a
    `grammar` its text is one that this allows. After `seconds`, from when it was submitted, the answer ends
    with what it has.
    """

    ids: tuple[int, ...]
    max_new_tokens: int = 256
    sampling: Sampling = Sampling()  # noqa: RUF009  # frozen
    stop: tuple[str, ...] = ()
    stop_ids: frozenset[int] | None = None
    grammar: Grammar | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        count = integer("max_new_tokens", self.max_new_tokens)
        if count < 1:
            raise InputError(f"max_new_tokens must be at least 1, not {count}")
        ids = tuple(integers("ids", self.ids))
        if not ids:
            raise InputError("a request needs at least one token to go on from")
        if not isinstance(self.sampling, Sampling):
            raise InputError(f"sampling must be a Sampling, not {shortened(self.sampling)}")
        if self.grammar is not None and not isinstance(self.grammar, Grammar):
            raise InputError(f"grammar must be a Grammar, not {shortened(self.grammar)}")
        given = self.stop_ids
        if given is not None:
            listed = integers("stop_ids", list(given) if isinstance(given, Set) else given)
            object.__setattr__(self, "stop_ids", frozenset(listed))
        if self.seconds is not None:
            seconds = number("seconds", self.seconds)
            if not seconds > 0:
                raise InputError(f"seconds must be above 0, not {seconds}")
            object.__setattr__(self, "seconds", seconds)
        object.__setattr__(self, "ids", ids)
        object.__setattr__(self, "max_new_tokens", count)
        object.__setattr__(self, "stop", tuple(strings("stop", self.stop)))
