"""Messages and texts of requests -> token ids.

OpenAI's messages differ from those of chat templates: content may be a list of parts, and the arguments of a
tool call are a string instead of an object.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pteron.llm.images.prompt import PromptImage
from pteron.llm.text_model import TextModel
from pteron.serving.api.schema import ContentPart, Message, Tool
from pteron.serving.http.disconnect import check_client
from pteron.serving.http.errors import ApiError, invalid_value
from pteron.serving.http.limits import Limits

_RESERVED = {"messages", "tools", "bos_token", "eos_token", "bos", "eos", "template", "self"}
# Names of one field: a template reads one of them, and a client may send another.
_REASONING = ("reasoning_content", "reasoning", "thinking")
_SLICE = 1 << 14  # characters of a long text that are encoded at once
_SEAM = 64  # tokens that two slices may have more than the text that they make up


@dataclass(frozen=True, slots=True)
class RenderedChat:
    """A conversation as the chat template writes it, and its images."""

    text: str
    images: tuple[PromptImage, ...] = ()

    def __add__(self, text: str) -> RenderedChat:
        return replace(self, text=self.text + text)


def encode_rendered(llm: TextModel, chat: RenderedChat, limits: Limits) -> tuple[int, ...]:
    """The tokens of a conversation that the chat template has rendered."""
    _check_text(llm, chat.text, "messages", limits)
    return _check_length(llm, llm.encode_rendered(chat.text, chat.images), "messages", limits)


def render_chat(
    llm: TextModel,
    messages: Sequence[Message],
    tools: Sequence[Tool],
    variables: dict[str, Any],
    limits: Limits,
    *,
    as_text: bool = False,
) -> RenderedChat:
    """A conversation as the model's chat template writes it. `as_text`: the template takes the arguments of
    calls as a string of JSON, not as an object."""
    reserved = _RESERVED & variables.keys()
    if reserved:
        names = ", ".join(sorted(reserved))
        raise invalid_value(f"chat_template_kwargs must not set {names}", "chat_template_kwargs")
    most, what = _most_tokens(llm, limits)
    if len(messages) > most:  # each is at least one token
        raise _too_long(f"{len(messages)} messages; {what}", "messages")
    plain = [_template_message(message, index, as_text) for index, message in enumerate(messages)]
    declared = [tool.model_dump(exclude_none=True) for tool in tools]
    images = _read_images(llm, plain, limits) if any(message.has_images for message in messages) else ()
    text = llm.render_chat(plain, tools=declared or None, **variables)
    try:
        text.encode()
    except UnicodeEncodeError:  # from the arguments of a call, which are JSON in a string
        raise invalid_value("the rendered messages have half of a surrogate pair", "messages") from None
    return RenderedChat(text, images)


def _read_images(
    llm: TextModel, messages: Sequence[dict[str, Any]], limits: Limits
) -> tuple[PromptImage, ...]:
    """The images of a conversation. Once they are too many, or the client has left, no further one is read:
    small files may become large."""
    most, what = _most_tokens(llm, limits)
    found, rows = list[PromptImage](), 0
    check_client()
    for image in llm.read_images(messages):
        found.append(image)
        rows += len(image)
        if rows > most:
            message = f"the first {len(found)} images have {rows} rows, which count as tokens; {what}"
            raise _too_long(message, "messages")
        check_client()
    return tuple(found)


def encode_prompts(llm: TextModel, prompt: object, limits: Limits) -> list[tuple[int, ...]]:
    """The tokens of each prompt of a completion."""
    return [encode_prompt(llm, one, "prompt", limits) for one in as_list(prompt, "prompt")]


def encode_prompt(
    llm: TextModel, prompt: str | list[int], param: str, limits: Limits, *, bos: bool = True
) -> tuple[int, ...]:
    """The tokens of a prompt; without `bos` those of its text alone."""
    if not isinstance(prompt, str):
        return _check_length(llm, _check_ids(llm, prompt), param, limits)
    _check_text(llm, prompt, param, limits)
    ids = llm.encode(prompt) if bos else llm.tokenizer.encode(prompt)
    return _check_length(llm, ids, param, limits)


def as_list(given: object, param: str) -> list[str | list[int]]:
    """One text, one list of tokens, or several of either, as a list."""
    if isinstance(given, str):
        return [given]
    assert isinstance(given, list)
    if not given:
        raise invalid_value(f"{param} is empty", param)
    return [given] if isinstance(given[0], int) else given


def _most_tokens(llm: TextModel, limits: Limits) -> tuple[int, str]:
    """The most tokens of a prompt, and why."""
    context = llm.model.context
    most = min(context or limits.prompt_tokens, limits.prompt_tokens)
    what = "the model's context holds" if most == context else "the server's limit is"
    return most, f"{what} {most} tokens"


def _too_long(message: str, param: str) -> ApiError:
    return invalid_value(message, param, code="context_length_exceeded")


def _check_text(llm: TextModel, text: str, param: str, limits: Limits) -> None:
    """Raise for a text that is certainly too long, in a time that does not depend on how long it is: its
    tokens take time and memory. First by its bytes, then by the tokens of its beginning, in slices; between
    two, the request ends if its client has left."""
    most, what = _most_tokens(llm, limits)
    size = len(text.encode("utf-8", "replace"))
    if size > most * llm.tokenizer.longest:
        raise _too_long(f"the prompt has {size} bytes; {what}", param)
    count = count_slices(lambda part: llm.tokenizer.encode(part, special=True), text, most)
    if count > most:
        raise _too_long(f"the prompt has more than {count} tokens; {what}", param)


def count_slices(encode: Callable[[str], Sequence[int]], text: str, most: int) -> int:
    """The fewest tokens that a text can have; not counted further than above `most`. A short text has 0."""
    count = 0
    for start in range(0, len(text), _SLICE) if len(text) > _SLICE else ():
        count += max(0, len(encode(text[start : start + _SLICE])) - _SEAM)
        check_client()
        if count > most:
            break
    return count


def _check_length(llm: TextModel, ids: Sequence[int], param: str, limits: Limits) -> tuple[int, ...]:
    most, what = _most_tokens(llm, limits)
    if len(ids) > most:
        raise _too_long(f"the prompt has {len(ids)} tokens; {what}", param)
    return tuple(ids)


def _check_ids(llm: TextModel, ids: list[int]) -> list[int]:
    if not ids or not 0 <= min(ids) <= max(ids) < llm.model.vocabulary:
        message = f"a prompt needs at least one token id, each from 0 to {llm.model.vocabulary - 1}"
        raise invalid_value(message, "prompt")
    return ids


def _template_message(message: Message, index: int, as_text: bool) -> dict[str, Any]:
    """A message in the format of chat templates."""
    plain = {name: value for name, value in message.model_dump().items() if value is not None}
    if message.role == "developer":
        plain["role"] = "system"  # the name that templates know
    content = message.content
    if message.has_images and isinstance(content, list):
        plain["content"] = [_template_part(part) for part in content]
    else:
        plain["content"] = (
            content if isinstance(content, str) else "".join(part.content for part in content or ())
        )
    if content is None and not (message.role == "assistant" and message.tool_calls):
        param = f"messages.{index}.content"
        raise invalid_value("the message has no content", param, code="missing_required_parameter")
    for call in plain.get("tool_calls", ()):
        parsed = _parse_arguments(call["function"]["arguments"], index)
        call["function"]["arguments"] = call["function"]["arguments"] if as_text else parsed
    reasoning = next((plain[name] for name in _REASONING if plain.get(name)), None)
    return plain | (dict.fromkeys(_REASONING, reasoning) if reasoning else {})


def _template_part(part: ContentPart) -> dict[str, Any]:
    if part.image_url is not None:
        return {"type": "image_url", "image_url": {"url": part.image_url.url}}
    return {"type": "text", "text": part.content}


def _parse_arguments(arguments: str, index: int) -> dict[str, Any]:
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        message = "the arguments of a tool call must be a JSON object, as a string"
        raise invalid_value(message, f"messages.{index}.tool_calls")
    return found
