"""Messages and texts of requests -> token ids.

OpenAI's messages differ from those of chat templates: content may be a list of parts, and the arguments of a
tool call are a string instead of an object.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pteron.llm.text_model import TextModel
from pteron.serving.http.errors import invalid_value
from pteron.serving.http.limits import Limits
from pteron.serving.http.schema import Message, Tool

_RESERVED = {"messages", "tools", "bos_token", "eos_token", "bos", "eos", "template", "self"}


def encode_chat(
    llm: TextModel,
    messages: Sequence[Message],
    tools: Sequence[Tool],
    variables: dict[str, Any],
    opening: str,
    limits: Limits,
) -> tuple[int, ...]:
    """The tokens of a conversation, followed by the beginning of the answer, `opening`."""
    reserved = _RESERVED & variables.keys()
    if reserved:
        names = ", ".join(sorted(reserved))
        raise invalid_value(f"chat_template_kwargs must not set {names}", "chat_template_kwargs")
    plain = [_template_message(message, index) for index, message in enumerate(messages)]
    declared = [tool.model_dump(exclude_none=True) for tool in tools]
    ids = llm.encode_chat(plain, tools=declared or None, **variables)
    if opening:
        ids = (*ids, *llm.tokenizer.encode(opening, special=True))
    return _check_length(llm, ids, "messages", limits)


def encode_prompts(llm: TextModel, prompt: object, limits: Limits) -> list[tuple[int, ...]]:
    """The tokens of each prompt of a completion."""
    return [
        _check_length(
            llm, llm.encode(one) if isinstance(one, str) else _check_ids(llm, one), "prompt", limits
        )
        for one in as_list(prompt, "prompt")
    ]


def as_list(given: object, param: str) -> list[str | list[int]]:
    """One text, one list of tokens, or several of either, as a list."""
    if isinstance(given, str):
        return [given]
    assert isinstance(given, list)
    if not given:
        raise invalid_value(f"{param} is empty", param)
    return [given] if isinstance(given[0], int) else given


def _check_length(llm: TextModel, ids: Sequence[int], param: str, limits: Limits) -> tuple[int, ...]:
    context = llm.model.context
    most = min(context or limits.prompt_tokens, limits.prompt_tokens)
    if len(ids) > most:
        what = "the model's context holds" if most == context else "the server's limit is"
        message = f"the prompt has {len(ids)} tokens; {what} {most}"
        raise invalid_value(message, param, code="context_length_exceeded")
    return tuple(ids)


def _check_ids(llm: TextModel, ids: list[int]) -> list[int]:
    if not ids or not 0 <= min(ids) <= max(ids) < llm.model.vocabulary:
        message = f"a prompt needs at least one token id, each from 0 to {llm.model.vocabulary - 1}"
        raise invalid_value(message, "prompt")
    return ids


def _template_message(message: Message, index: int) -> dict[str, Any]:
    """A message in the format of chat templates."""
    plain = {name: value for name, value in message.model_dump().items() if value is not None}
    if message.role == "developer":
        plain["role"] = "system"  # the name that templates know
    content = message.content
    plain["content"] = (
        content if isinstance(content, str) else "".join(part.content for part in content or ())
    )
    if content is None and not (message.role == "assistant" and message.tool_calls):
        param = f"messages.{index}.content"
        raise invalid_value("the message has no content", param, code="missing_required_parameter")
    for call in plain.get("tool_calls", ()):
        call["function"]["arguments"] = _parse_arguments(call["function"]["arguments"], index)
    return plain


def _parse_arguments(arguments: str, index: int) -> dict[str, Any]:
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        message = "the arguments of a tool call must be a JSON object, as a string"
        raise invalid_value(message, f"messages.{index}.tool_calls")
    return found
