"""Settings by their names: keyword arguments -> a Sampling, and what a chat template is given.

`Settings` are all that there are; those of drawing are `Sampling`'s own fields. A name that is mistyped is
refused: a template would take it without a word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from reprlib import repr as shortened
from typing import Any, TypedDict

from pteron.errors import InputError
from pteron.llm.chat import variables_of
from pteron.llm.grammar import Grammar
from pteron.llm.sampling import Sampling
from pteron.llm.text_model import Overflow


class Drawing(TypedDict, total=False):
    """How tokens are drawn: the fields of `Sampling`."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    seed: int
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float] | tuple[tuple[int, float], ...]
    top_logprobs: int


class Settings(Drawing, total=False):
    """What `LLM.generate` takes by name, and says the meaning of."""

    max_new_tokens: int
    sampling: Sampling | None
    stop: str | Sequence[str]
    stop_ids: Sequence[int] | None
    overflow: Overflow
    grammar: Grammar | None
    resident: bool | None


DRAWING = frozenset(field.name for field in fields(Sampling))
_SETTINGS = sorted(Settings.__optional_keys__)
_LIKENESS = 0.75  # of names that mean the same: "top" is "top_k", "enable_thinking" is nothing


def drawn_by(sampling: Sampling | None, given: Mapping[str, object]) -> Sampling:
    """How tokens are drawn: `sampling`, or greedily, with what is given by name instead of its fields."""
    if sampling is not None and not isinstance(sampling, Sampling):
        raise InputError(f"sampling must be a Sampling, not {shortened(sampling)}")
    for name in given:
        if name not in DRAWING:
            near = _near(name)
            meant = f"did you mean {near}?" if near else f"there are {', '.join(_SETTINGS)}"
            raise InputError(f"there is no setting {name!r}: {meant}")
    return replace(sampling or Sampling(), **given)  # type: ignore[arg-type]  # each is checked by Sampling


def divided(given: Mapping[str, Any], template: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """What are settings, and what is for the template of a chat."""
    settings = {name: value for name, value in given.items() if name in _SETTINGS}
    variables = {name: value for name, value in given.items() if name not in _SETTINGS}
    for name in variables:
        near = _near(name)
        if near and name not in variables_of(template):
            raise InputError(
                f"{name!r} is neither a setting nor a variable of the chat template: did you mean {near}?"
            )
    return settings, variables


def _near(name: str) -> str | None:
    """The setting that somebody may have meant."""
    short = [setting for setting in _SETTINGS if len(name) > 2 and setting.startswith(name)]  # as `temp`
    return next(iter(short or get_close_matches(name, _SETTINGS, 1, _LIKENESS)), None)
