"""What is asked of a model, checked before anything begins: prompts and settings -> Continuation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from reprlib import repr as shortened
from typing import Any, TypeAlias

from pteron.errors import InputError
from pteron.llm.by_name import divided, drawn_by
from pteron.llm.chat import Message
from pteron.llm.continuing import Continuation
from pteron.llm.given import integer, integers, strings
from pteron.llm.grammar import Grammar
from pteron.llm.sampling import Sampling
from pteron.llm.text_model import Overflow, TextModel

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
