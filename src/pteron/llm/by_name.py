"""Settings by their names: keyword arguments -> a Sampling and what a chat template is given.

Names are `Sampling`'s own fields. One that is mistyped is refused: a template would take it without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from reprlib import repr as shortened

from pteron.errors import InputError
from pteron.llm.chat import variables_of
from pteron.llm.sampling import Sampling

DRAWING = frozenset(field.name for field in fields(Sampling))
_OPTIONS = (
    "grammar",
    "max_new_tokens",
    "overflow",
    "resident",
    "sampling",
    "stop",
    "stop_ids",
)  # of `generate`
_SETTINGS = sorted({*_OPTIONS, *DRAWING})
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


def divided(given: Mapping[str, object], template: str | None) -> tuple[dict[str, object], dict[str, object]]:
    """What is for drawing, and what is for the template of a chat."""
    drawing = {name: value for name, value in given.items() if name in DRAWING}
    variables = {name: value for name, value in given.items() if name not in DRAWING}
    for name in variables:
        near = _near(name)
        if near and name not in variables_of(template):
            raise InputError(
                f"{name!r} is neither a setting nor a variable of the chat template: did you mean {near}?"
            )
    return drawing, variables


def _near(name: str) -> str | None:
    """The setting that somebody may have meant."""
    short = [setting for setting in _SETTINGS if len(name) > 2 and setting.startswith(name)]  # as `temp`
    return next(iter(short or get_close_matches(name, _SETTINGS, 1, _LIKENESS)), None)
