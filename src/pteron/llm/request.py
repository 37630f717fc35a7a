"""Settings by their names: keyword arguments -> a Sampling, and what a chat template is given.

`Settings` are all that there are; those of drawing are `Sampling`'s own fields. A name that is mistyped is
refused: a template would take it without a word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from reprlib import repr as shortened
from typing import Any, TypeAlias, TypedDict

from pteron.errors import InputError
from pteron.llm.arguments import integer, integers, strings
from pteron.llm.chat import Message, variables_of
from pteron.llm.continuing import Continuation
from pteron.llm.grammar import Grammar
from pteron.llm.sampling import Sampling
from pteron.llm.text_model import Overflow, TextModel


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


Prompt: TypeAlias = str | Sequence[int]
Conversation: TypeAlias = Sequence[Message]


def text_asked(
    llm: TextModel,
    prompt: Prompt,
    *,
    max_new_tokens: int = 256,
    sampling: Sampling | None = None,
    stop: str | Sequence[str] = (),
    stop_ids: Sequence[int] | None = None,
    overflow: Overflow = "error",
    grammar: Grammar | None = None,
    resident: bool | None = None,
    **drawing: object,
) -> Continuation:
    """A text, or token ids, to be continued; what else is given by name is how tokens are drawn."""
    count = integer("max_new_tokens", max_new_tokens)
    if grammar is not None and not isinstance(grammar, Grammar):
        raise InputError(f"grammar must be a Grammar, not {shortened(grammar)}")
    drawn = drawn_by(sampling, drawing)
    ids = llm.encode(prompt)
    fitted = llm.fitted(ids, count, overflow)
    return Continuation(
        tuple(fitted),
        len(ids) - len(fitted),
        count,
        drawn,
        tuple(strings("stop", stop)),
        frozenset(llm.eos_ids if stop_ids is None else integers("stop_ids", stop_ids)),
        grammar,
        resident,
    )


def answer_asked(
    llm: TextModel,
    messages: Conversation,
    *,
    tools: Sequence[object] | None = None,
    max_new_tokens: int = 512,
    stop: str | Sequence[str] = (),
    **named: Any,
) -> Continuation:
    """A conversation to be answered. Names that are no settings are the chat template's."""
    settings, variables = divided(named, llm.tokenizer.chat_template)
    return text_asked(
        llm,
        llm.encode_chat(messages, tools, **variables),
        max_new_tokens=max_new_tokens,
        stop=[*strings("stop", stop), *llm.chat_stops],
        **settings,
    )


def asked(llm: TextModel, prompt: Prompt | Conversation, settings: Mapping[str, Any]) -> Continuation:
    """A text to be continued, or a conversation to be answered: a list of messages is one."""
    if not isinstance(prompt, str) and _is_conversation(prompt):
        return answer_asked(llm, prompt, **settings)  # type: ignore[arg-type]  # as it was found to be
    return text_asked(llm, prompt, **settings)  # type: ignore[arg-type]  # `encode` says what is neither


def all_asked(
    llm: TextModel, prompts: Sequence[Prompt | Conversation], settings: Mapping[str, Any]
) -> list[Continuation]:
    """Several, with the settings of all. Which of them is wrong is said before the first begins."""
    if isinstance(prompts, (str, bytes)) or not isinstance(prompts, Sequence):
        raise InputError("prompts are a list of texts, of token ids or of conversations, not one of them")
    found = []
    for index, prompt in enumerate(prompts):
        try:
            found.append(asked(llm, prompt, settings))
        except InputError as error:
            raise InputError(f"prompt {index} of {len(prompts)}: {error}") from error
    return found


def _is_conversation(prompt: object) -> bool:
    return isinstance(prompt, Sequence) and any(isinstance(part, Mapping) for part in prompt)
