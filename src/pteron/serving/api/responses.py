"""/v1/responses: OpenAI's Responses API, and what it keeps of earlier responses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from pteron.llm import Piece
from pteron.serving.answer.blocks import Block, Change, Close, Delta, Open
from pteron.serving.answer.generation import Generation, new_id, now
from pteron.serving.api.chunks import logprob_entry
from pteron.serving.api.conversations import StoredResponse
from pteron.serving.api.schema import (
    Body,
    ChatBody,
    Many,
    SamplingBody,
    Small,
    StreamOptions,
    Tools,
    Unsupported,
)
from pteron.serving.http.errors import ApiError, invalid_value, validated
from pteron.serving.http.json_body import JsonRoute
from pteron.serving.http.server_state import ServerState, server_of
from pteron.serving.http.sse import encode_event
from pteron.serving.prompt.chat import prepare_chat

router = APIRouter(route_class=JsonRoute)
_PARTS = {"text": "output_text", "thought": "reasoning_text"}  # kinds of blocks -> types
_PREFIXES = {"text": "msg", "thought": "rs", "call": "fc"}  # of the ids of items


class FunctionTool(Body):
    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamedFunction(Body):
    type: Literal["function"]
    name: str


class TextFormat(Body):
    """`response_format` of chat completions, without its inner object."""

    type: Literal["text", "json_object", "json_schema", "grammar"]
    name: str | None = None
    description: str | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = None
    syntax: str | None = None
    definition: str | None = None


class TextOptions(Body):
    format: TextFormat | None = None


class ResponseBody(SamplingBody):
    """POST /v1/responses"""

    input: str | Annotated[list[dict[str, Any]], Many]
    instructions: str | None = None
    previous_response_id: str | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    tools: Annotated[list[FunctionTool], Tools] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedFunction | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    include: list[str] | None = None
    store: bool | None = None
    reasoning: Annotated[dict[str, Any] | None, Small] = None
    chat_template_kwargs: dict[str, Any] | None = None
    stream_options: StreamOptions | None = None
    user: Annotated[Any, Small] = None
    metadata: Annotated[Any, Small] = None
    service_tier: Annotated[Any, Small] = None
    truncation: Annotated[Any, Small] = None
    background: Unsupported = None
    conversation: Unsupported = None
    prompt: Unsupported = None


@router.post("/v1/responses")
async def respond(request: Request, body: ResponseBody) -> Response:
    server = server_of(request)
    before, given = _before(body, server), _given(body)
    chat = to_chat(body, [*(before.items if before else ()), *given])
    generation = await prepare_chat(request, chat)

    def store(response: dict[str, Any]) -> None:
        if body.store is not False:
            server.conversations.add(StoredResponse(given, response, before))

    alternatives = chat.top_logprobs if chat.logprobs else None
    writer = ResponseWriter(generation, body, store, alternatives)
    return await generation.respond(writer, stream=bool(body.stream))


@router.get("/v1/responses/{id}")
async def retrieve(request: Request, id: str, stream: bool = False) -> dict[str, Any]:
    if stream:
        raise invalid_value("a response is streamed only while it is generated", "stream")
    return _stored(server_of(request), id).response


@router.delete("/v1/responses/{id}")
async def delete(request: Request, id: str) -> dict[str, Any]:
    server = server_of(request)
    _stored(server, id)
    server.conversations.delete(id)
    return {"id": id, "object": "response", "deleted": True}


@router.get("/v1/responses/{id}/input_items")
async def input_items(
    request: Request,
    id: str,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: Literal["asc", "desc"] = "desc",
    after: str | None = None,
) -> dict[str, Any]:
    """A page of the items that a response was made from; `after` is the last item of the page before."""
    items = _stored(server_of(request), id).input
    items = items if order == "asc" else items[::-1]
    if after is not None:
        places = [place for place, item in enumerate(items) if item["id"] == after]
        if not places:
            raise invalid_value(f"the response has no item {after!r}", "after")
        items = items[places[0] + 1 :]
    page = items[:limit]
    ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {}
    return {"object": "list", "data": page, "has_more": len(items) > limit, **ends}


def _stored(
    server: ServerState, id: str, param: str = "id", code: str = "response_not_found"
) -> StoredResponse:
    found = server.conversations.find(id)
    if found is None:
        message = f"there is no response {id!r}, or it is no longer in memory"
        raise ApiError(404, message, param=param, code=code)
    return found


def _before(body: ResponseBody, server: ServerState) -> StoredResponse | None:
    """The turn that a request continues."""
    if body.previous_response_id is None:
        return None
    param, code = "previous_response_id", "previous_response_not_found"
    return _stored(server, body.previous_response_id, param, code)


def _given(body: ResponseBody) -> list[dict[str, Any]]:
    """The items of the input, with ids and parts."""
    given = [{"role": "user", "content": body.input}] if isinstance(body.input, str) else body.input
    return [*map(_whole_item, given)]


def _whole_item(item: dict[str, Any]) -> dict[str, Any]:
    """An item as /v1/responses returns it: a message may be given without its type and with a text."""
    id = item.get("id") or new_id("msg_" if "role" in item else "item_")
    found = {"type": "message", **item, "id": id}
    if isinstance(found.get("content"), str):
        kind = "output_text" if found.get("role") == "assistant" else "input_text"
        found["content"] = [{"type": kind, "text": found["content"]}]
    return found


def to_chat(body: ResponseBody, items: list[dict[str, Any]]) -> ChatBody:
    """The same conversation in the format of chat completions."""
    own = {*ResponseBody.model_fields} - {*ChatBody.model_fields}
    fields = body.model_dump(
        exclude=own | {"tools", "tool_choice", "stream_options", "top_logprobs"},
        exclude_unset=True,
        by_alias=True,
    )
    messages: list[dict[str, Any]] = []
    if body.instructions:
        messages.append({"role": "system", "content": body.instructions})
    first = len(items) - (1 if isinstance(body.input, str) else len(body.input))  # of the input
    for index, item in enumerate(items):
        _add_item(messages, item, f"input.{index - first}")
    fields |= {"messages": messages, "max_completion_tokens": body.max_output_tokens}
    if body.tools:
        fields["tools"] = [
            {"type": "function", "function": tool.model_dump(exclude={"type"})} for tool in body.tools
        ]
    choice = body.tool_choice
    if isinstance(choice, NamedFunction):
        fields["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
    else:
        fields["tool_choice"] = choice
    if body.text and body.text.format:
        fields["response_format"] = _response_format(body.text.format)
    if body.top_logprobs is not None or "message.output_text.logprobs" in (body.include or ()):
        fields |= {"logprobs": True, "top_logprobs": body.top_logprobs or 0}
    fields["reasoning_effort"] = (body.reasoning or {}).get("effort")
    return validated(ChatBody, fields)


def _response_format(format: TextFormat) -> dict[str, Any]:
    found: dict[str, Any] = {"type": format.type, "syntax": format.syntax, "definition": format.definition}
    if format.type == "json_schema":
        found["json_schema"] = {"name": format.name or "output", "schema": format.schema_}
    return found


def _add_item(messages: list[dict[str, Any]], item: dict[str, Any], param: str) -> None:
    """Add an item of the input. Text, reasoning and calls of one turn are items; in a chat they are one
    message."""
    match item:
        case {"type": "function_call", "name": str(name), "arguments": str(arguments)}:
            function = {"name": name, "arguments": arguments}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            _assistant(messages).setdefault("tool_calls", []).append(call)
        case {"type": "function_call_output", "call_id": str(id)}:
            output = item.get("output") or ""
            messages.append({"role": "tool", "tool_call_id": id, "content": _content(output, param)})
        case {"type": "reasoning"}:
            parts = item.get("content") or item.get("summary") or []
            _assistant(messages, is_new=True)["reasoning_content"] = _content(parts, param)
        case {"role": "assistant", "content": content}:
            message = _assistant(messages)
            message["content"] = (message.get("content") or "") + _content(content, param)
        case {"role": str(role), "content": content}:
            messages.append({"role": role, "content": _parts(content, param)})
        case _:
            raise invalid_value(
                "expected a message, a function_call, a function_call_output or a reasoning item", param
            )


def _assistant(messages: list[dict[str, Any]], *, is_new: bool = False) -> dict[str, Any]:
    """The assistant's message at the end, added if there is none."""
    if is_new or not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    return messages[-1]


def _parts(content: object, param: str) -> str | list[dict[str, Any]]:
    """Content that may have images: as text, if it has none."""
    parts = content if isinstance(content, list) else []
    if not any(isinstance(part, dict) and part.get("type") == "input_image" for part in parts):
        return _content(content, param)
    return [_part(part, param) for part in parts]


def _part(part: object, param: str) -> dict[str, Any]:
    match part:
        case {"type": "input_image", "image_url": str(url)}:
            return {"type": "image_url", "image_url": {"url": url}}
        case {"type": "input_image"}:
            message = "input_image needs image_url, a data URL: this server keeps no files"
            raise invalid_value(message, f"{param}.content")
        case _:
            return {"type": "text", "text": _content([part], param)}


def _content(content: object, param: str) -> str:
    """The text of content: a string, or parts that have a text."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [None]
    texts = [part.get("text", part.get("refusal")) if isinstance(part, dict) else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise invalid_value("expected a string, or a list of parts with a text", f"{param}.content")
    return "".join(map(str, texts))


class ResponseWriter:
    """Each block is an item of the output. `store` takes the whole response."""

    media_type = "text/event-stream"

    def __init__(
        self,
        generation: Generation,
        body: ResponseBody,
        store: Callable[[dict[str, Any]], None],
        alternatives: int | None,
    ) -> None:
        self._generation = generation
        (self._answer,) = generation.answers
        self._given = body
        self._store = store
        self._alternatives = alternatives
        self._number = -1  # of the last event
        model = generation.record.model
        self._head = {"id": new_id("resp_"), "object": "response", "created_at": now(), "model": model}

    def start(self) -> Iterator[bytes]:
        for name in ("created", "in_progress"):
            yield self._event(f"response.{name}", response=self._response("in_progress"))

    def write(self, index: int, change: Change) -> Iterator[bytes]:
        match change:
            case Open(Block("call") as block):
                item = self._item(block)
                yield self._event("response.output_item.added", output_index=block.index, item=item)
            case Open(block):
                item = self._item(block) | {"content": []}
                yield self._event("response.output_item.added", output_index=block.index, item=item)
                part = self._part(block)
                yield self._event("response.content_part.added", part=part, content_index=0, **_place(block))
            case Delta(Block("call") as block, text):
                yield self._event("response.function_call_arguments.delta", delta=text, **_place(block))
            case Delta(Block() as block, text, piece):
                fields: dict[str, Any] = {"delta": text}
                if block.kind == "text":
                    fields["logprobs"] = self._logprobs([piece] if piece else [])
                kind = f"response.{_PARTS[block.kind]}.delta"
                yield self._event(kind, **fields, **_place(block), content_index=0)
            case Close(Block("call") as block):
                done = {"name": block.name, "arguments": block.text}
                yield self._event("response.function_call_arguments.done", **done, **_place(block))
                yield self._done(block)
            case Close(block):
                part, place = self._part(block), _place(block) | {"content_index": 0}
                done = {name: part[name] for name in ("text", "logprobs") if name in part}
                yield self._event(f"response.{part['type']}.done", **done, **place)
                yield self._event("response.content_part.done", part=part, **place)
                yield self._done(block)

    def end(self) -> Iterator[bytes]:
        body = self.body()
        yield self._event(f"response.{body['status']}", response=body)

    def fail(self, error: ApiError) -> Iterator[bytes]:
        failed = self._response("failed") | {"error": {"code": error.code, "message": error.message}}
        yield self._event("response.failed", response=failed)

    def body(self) -> dict[str, Any]:
        counts, is_cut = self._generation, self._answer.end.reason == "length"
        usage = {
            "input_tokens": counts.prompt_tokens,
            "input_tokens_details": {"cached_tokens": counts.reused_tokens},
            "output_tokens": counts.new_tokens,
            "output_tokens_details": {"reasoning_tokens": counts.reasoning_tokens},
            "total_tokens": counts.prompt_tokens + counts.new_tokens,
        }
        found = self._response("incomplete" if is_cut else "completed") | {"usage": usage}
        found |= {"incomplete_details": {"reason": "max_output_tokens"}} if is_cut else {}
        self._store(found)
        return found

    def _response(self, status: str) -> dict[str, Any]:
        """The response so far: what was asked, and the items."""
        asked = self._given.model_dump(by_alias=True)
        names = ["instructions", "max_output_tokens", "previous_response_id", "temperature", "top_p", "user"]
        names += ["metadata", "top_logprobs", "service_tier", "reasoning"]
        default: dict[str, Any] = {
            "tools": [],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "store": True,
            "truncation": "disabled",
            "text": {"format": {"type": "text"}},
        }
        given = {name: asked[name] for name in default if asked[name] is not None}
        fields = {name: asked[name] for name in names} | default | given
        empty = {"error": None, "incomplete_details": None, "usage": None, "background": False}
        output = [self._item(block) for block in self._answer.blocks]
        return {**self._head, "status": status, **fields, **empty, "output": output}

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        return encode_event({"type": kind, "sequence_number": self._number, **fields}, kind)

    def _done(self, block: Block) -> bytes:
        item = self._item(block)
        return self._event("response.output_item.done", output_index=block.index, item=item)

    def _item(self, block: Block) -> dict[str, Any]:
        """A block as it is now."""
        status = {"status": "in_progress" if block.is_open else "completed"}
        match block.kind:
            case "call":
                call = {"type": "function_call", "id": _id(block), "call_id": block.call_id}
                return {**call, "name": block.name, "arguments": block.text, **status}
            case "thought":
                item: dict[str, Any] = {"type": "reasoning", "id": _id(block), "summary": []}
            case "text":
                item = {"type": "message", "id": _id(block), "role": "assistant"}
        return {**item, **status, "content": [self._part(block)]}

    def _part(self, block: Block) -> dict[str, Any]:
        """The only part of an item of text or reasoning."""
        part: dict[str, Any] = {"type": _PARTS[block.kind], "text": block.text}
        if block.kind == "text":
            pieces = [piece for of, piece in self._answer.tokens if of is block]
            part |= {"annotations": [], "logprobs": self._logprobs(pieces)}
        return part

    def _logprobs(self, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
        if self._alternatives is None:
            return []
        tokenizer = self._generation.model.llm.tokenizer
        return [logprob_entry(tokenizer, piece, self._alternatives) for piece in pieces]


def _id(block: Block) -> str:
    return f"{_PREFIXES[block.kind]}_{block.key}"


def _place(block: Block) -> dict[str, Any]:
    return {"item_id": _id(block), "output_index": block.index}
