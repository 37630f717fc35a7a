"""Messages and texts of requests -> token ids, in the model's own form.

OpenAI's messages differ a little from what chat templates know: content may come in parts, and the arguments
of a call to a tool are a text there, an object here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pteron.llm.text_model import TextModel
from pteron.serving.http.errors import ApiError
from pteron.serving.http.limits import Limits
from pteron.serving.http.schema import Message, Tool

_RESERVED = {"messages", "tools", "bos_token", "eos_token", "bos", "eos", "template", "self"}


def chat_ids(
    llm: TextModel,
    messages: Sequence[Message],
    tools: Sequence[Tool],
    variables: dict[str, Any],
    opening: str,
    limits: Limits,
) -> tuple[int, ...]:
    """The tokens of a conversation, up to where the assistant's answer begins; `opening` is what the answer
    is made to begin with."""
    reserved = _RESERVED & variables.keys()
    if reserved:
        message = f"chat_template_kwargs: {', '.join(sorted(reserved))} is not the request's to set"
        raise ApiError(400, message, param="chat_template_kwargs", code="invalid_value")
    plain = [_plain(message, place) for place, message in enumerate(messages)]
    declared = [tool.model_dump(exclude_none=True) for tool in tools]
    ids = llm.encode_chat(plain, tools=declared or None, **variables)
    if opening:
        ids = (*ids, *llm.tokenizer.encode(opening, special=True))
    return fitting(llm, ids, "messages", limits)


def prompt_ids(llm: TextModel, prompt: object, limits: Limits) -> list[tuple[int, ...]]:
    """The tokens of each prompt of a completion."""
    return [
        fitting(llm, llm.encode(one) if isinstance(one, str) else _known(llm, one), "prompt", limits)
        for one in several(prompt, "prompt")
    ]


def several(given: object, param: str) -> list[str | list[int]]:
    """One text, one list of tokens, or several of either, as a list."""
    if isinstance(given, str):
        return [given]
    assert isinstance(given, list)
    if not given:
        raise ApiError(400, f"{param} is empty", param=param, code="invalid_value")
    return [given] if isinstance(given[0], int) else given


def fitting(llm: TextModel, ids: Sequence[int], param: str, limits: Limits) -> tuple[int, ...]:
    """Tokens that are not too many for the model, or for the server."""
    context = llm.model.context
    most = min(context or limits.prompt_tokens, limits.prompt_tokens)
    if len(ids) > most:
        whose = "this model's context holds" if most == context else "this server takes"
        message = f"the prompt has {len(ids)} tokens, {whose} {most}"
        raise ApiError(400, message, param=param, code="context_length_exceeded")
    return tuple(ids)


def _known(llm: TextModel, ids: list[int]) -> list[int]:
    if not ids or not 0 <= min(ids) <= max(ids) < llm.model.vocabulary:
        message = f"tokens of a prompt are numbers from 0 to {llm.model.vocabulary - 1}, at least one"
        raise ApiError(400, message, param="prompt", code="invalid_value")
    return ids


def _plain(message: Message, place: int) -> dict[str, Any]:
    """A message as chat templates know it."""
    plain = {name: value for name, value in message.model_dump().items() if value is not None}
    if message.role == "developer":
        plain["role"] = "system"  # the older name of the same
    content = message.content
    plain["content"] = content if isinstance(content, str) else "".join(part.said for part in content or ())
    if content is None and not (message.role == "assistant" and message.tool_calls):
        message_text, param = "the message has no content", f"messages.{place}.content"
        raise ApiError(400, message_text, param=param, code="missing_required_parameter")
    for call in plain.get("tool_calls", ()):
        call["function"]["arguments"] = _object(call["function"]["arguments"], place)
    return plain


def _object(arguments: str, place: int) -> dict[str, Any]:
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        message = "the arguments of a tool's call are a JSON object, as text"
        raise ApiError(400, message, param=f"messages.{place}.tool_calls", code="invalid_value")
    return found
