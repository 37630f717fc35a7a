"""POST /v1/messages, /v1/messages/count_tokens: Anthropic's API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import Field, model_validator
from starlette.responses import Response

from pteron.serving.answer.blocks import Block, Change, Close, Delta, Open
from pteron.serving.answer.generation import Generation, new_id
from pteron.serving.answer.tool_calls import parsed_arguments
from pteron.serving.api.schema import Body, ChatBody, Fields, Many, SamplingBody, Tools, wrong
from pteron.serving.http.errors import NO_THREADS, ApiError, anthropic_body, invalid_value, validated
from pteron.serving.http.json_body import JsonRoute
from pteron.serving.http.sse import encode_event
from pteron.serving.prompt.chat import encode_chat, prepare, prepare_chat

router = APIRouter(route_class=JsonRoute)
_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_DELTAS = {
    "text": ("text_delta", "text"),
    "thought": ("thinking_delta", "thinking"),
    "call": ("input_json_delta", "partial_json"),
}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


class Turn(Body):
    role: Literal["user", "assistant", "system"]
    content: str | Annotated[list[dict[str, Any]], Many]


class Tool(Body):
    name: str
    description: str | None = None
    input_schema: dict[str, Any]
    type: str | None = None
    strict: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _check_type(cls, given: Any) -> Any:
        """Server tools have no schema: without this check, only that would be reported."""
        if isinstance(given, dict) and given.get("type") not in (None, "custom"):
            raise wrong("this server has no tools of its own, such as {kind}", kind=str(given["type"])[:64])
        return given


class ToolChoice(Body):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class OutputConfig(Fields):
    """Other fields, such as `effort`, have no effect."""

    format: dict[str, Any] | None = None


class PromptBody(SamplingBody):
    """POST /v1/messages/count_tokens, and the beginning of /v1/messages"""

    messages: Annotated[list[Turn], Field(min_length=1), Many]
    system: str | list[dict[str, Any]] | None = None
    tools: Annotated[list[Tool], Tools] | None = None
    tool_choice: ToolChoice | None = None
    thinking: dict[str, Any] | None = None
    output_config: OutputConfig | None = None
    output_format: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class MessageBody(PromptBody):
    """POST /v1/messages"""

    max_tokens: Annotated[int, Field(ge=1)]
    stop_sequences: list[str] | None = None
    thread: dict[str, Any] | None = None


@router.post("/v1/messages")
async def message(request: Request, body: MessageBody) -> Response:
    if body.thread is not None:
        message = "this server keeps no message threads: send the whole conversation"
        raise invalid_value(message, "thread", code=NO_THREADS)
    generation = await prepare_chat(request, to_chat(body))
    return await generation.respond(MessageWriter(generation), stream=bool(body.stream))


@router.post("/v1/messages/count_tokens")
async def count(request: Request, body: PromptBody) -> dict[str, int]:
    return {"input_tokens": len(await prepare(request, to_chat(body), encode_chat))}


def to_chat(body: PromptBody) -> ChatBody:
    """The same conversation in OpenAI's format."""
    own = {*PromptBody.model_fields, *MessageBody.model_fields} - {*ChatBody.model_fields}
    fields = body.model_dump(exclude=own, exclude_unset=True, by_alias=True)
    messages: list[dict[str, Any]] = []
    if body.system:
        messages.append({"role": "system", "content": _text(body.system, "system")})
    for index, turn in enumerate(body.messages):
        messages += _messages(turn, index)
    fields |= {"messages": messages, "continue_final_message": is_begun(messages)}
    if isinstance(body, MessageBody):
        fields["max_tokens"] = body.max_tokens
        fields["stop"] = body.stop_sequences or body.stop
    if body.tools:
        fields["tools"] = [_tool(tool) for tool in body.tools]
    if body.tool_choice is not None:
        choice = body.tool_choice
        fields["tool_choice"] = _CHOICES.get(choice.type) or _named(choice.name)
        fields["parallel_tool_calls"] = not choice.disable_parallel_tool_use
    thinks = (body.thinking or {}).get("type", "disabled") != "disabled"
    fields["chat_template_kwargs"] = {"enable_thinking": thinks, **(body.chat_template_kwargs or {})}
    format = body.output_format or (body.output_config and body.output_config.format)
    if format:
        schema = {"name": "output", "schema": format.get("schema")}
        fields["response_format"] = {"type": format.get("type"), "json_schema": schema}
    return validated(ChatBody, fields)


def is_begun(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the answer goes on with the last message, as with Anthropic and ollama."""
    last = messages[-1] if messages else {}
    is_text = isinstance(last.get("content"), str) and "tool_calls" not in last
    return is_text and last.get("role") == "assistant"


def _named(name: str | None) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name or ""}}


def _tool(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def _messages(turn: Turn, index: int) -> Iterator[dict[str, Any]]:
    """The messages of a turn: results of tools come before the user's text."""
    param = f"messages.{index}.content"
    if isinstance(turn.content, str):
        yield {"role": turn.role, "content": turn.content}
        return
    parts, thinking, calls = list[dict[str, Any]](), "", list[dict[str, Any]]()
    for block in turn.content:
        match block:
            case {"type": "text", "text": str(found)}:
                parts.append({"type": "text", "text": found})
            case {"type": "image", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
                parts.append(_image(f"data:{kind};base64,{data}"))
            case {"type": "image", "source": {"type": "url", "url": str(url)}}:
                parts.append(_image(url))
            case {"type": "thinking", "thinking": str(found)}:
                thinking += found
            case {"type": "redacted_thinking"}:
                pass
            case {"type": "tool_use", "id": str(id), "name": str(name), "input": dict(given)}:
                function = {"name": name, "arguments": json.dumps(given)}
                calls.append({"id": id, "type": "function", "function": function})
            case {"type": "tool_result", "tool_use_id": str(id)}:
                result = _text(block.get("content") or "", param)
                yield {"role": "tool", "tool_call_id": id, "content": result}
            case _:
                raise invalid_value(
                    "expected blocks of type text, image, thinking, tool_use or tool_result, with all their "
                    "fields",
                    param,
                )
    is_text = all(part["type"] == "text" for part in parts)
    content: str | list[Any] = "".join(part["text"] for part in parts) if is_text else parts
    if content or calls or not turn.content:
        message: dict[str, Any] = {"role": turn.role, "content": content}
        message |= {"reasoning_content": thinking} if thinking else {}
        yield message | ({"tool_calls": calls} if calls else {})


def _image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def _text(content: object, param: str) -> str:
    if isinstance(content, str):
        return content
    texts = []
    for block in content if isinstance(content, list) else [None]:
        match block:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case _:
                raise invalid_value("expected a string, or a list of blocks of type text", param)
    return "".join(texts)


class MessageWriter:
    media_type = "text/event-stream"

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        (self._answer,) = generation.answers
        model = generation.record.model
        self._head = {"id": new_id("msg_"), "type": "message", "role": "assistant", "model": model}

    def start(self) -> Iterator[bytes]:
        empty: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None}
        yield _event("message_start", message={**self._head, **empty, "usage": self._usage})

    def write(self, index: int, change: Change) -> Iterator[bytes]:
        match change:
            case Open(block):
                yield _event("content_block_start", index=block.index, content_block=_block(block))
            case Delta(Block() as block, text) if text:
                kind, field = _DELTAS[block.kind]
                yield _event("content_block_delta", index=block.index, delta={"type": kind, field: text})
            case Close(block):
                yield _event("content_block_stop", index=block.index)

    def end(self) -> Iterator[bytes]:
        yield _event("message_delta", delta=self._stop, usage=self._usage)
        yield _event("message_stop")

    def fail(self, error: ApiError) -> Iterator[bytes]:
        yield encode_event(anthropic_body(error), "error")

    def body(self) -> dict[str, Any]:
        blocks = [_block(block) for block in self._answer.blocks]
        return {**self._head, "content": blocks, **self._stop, "usage": self._usage}

    @property
    def _stop(self) -> dict[str, Any]:
        end = self._answer.end
        reason = "stop_sequence" if end.stop else _REASONS[end.reason]
        return {"stop_reason": reason, "stop_sequence": end.stop or None}

    @property
    def _usage(self) -> dict[str, Any]:
        counts = self._generation
        return {
            "input_tokens": counts.prompt_tokens - counts.reused_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": counts.reused_tokens,
            "output_tokens": counts.new_tokens,
        }


def _block(block: Block) -> dict[str, Any]:
    """A block as it is now; the arguments of a call are an object once they are complete."""
    match block.kind:
        case "text":
            return {"type": "text", "text": block.text}
        case "thought":
            return {"type": "thinking", "thinking": block.text, "signature": ""}
        case "call":
            given = {} if block.is_open else parsed_arguments(block.text)
            return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": given}


def _event(name: str, **fields: Any) -> bytes:
    return encode_event({"type": name, **fields}, name)
