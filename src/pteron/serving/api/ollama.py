"""/api/…: ollama's API, for clients that know no other.

A stream is one JSON object per line, and it is the default.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import ConfigDict, Field
from starlette.responses import JSONResponse, Response

import pteron
from pteron.llm.sampling_options import OPTIONS
from pteron.serving.answer.blocks import Block, Change, Close, Delta
from pteron.serving.answer.format import AnswerFormat
from pteron.serving.answer.generation import Generation
from pteron.serving.answer.tool_calls import parsed_arguments
from pteron.serving.api.completions import prepare_completion
from pteron.serving.api.embeddings import embed_texts
from pteron.serving.api.messages import is_begun
from pteron.serving.api.schema import ChatBody, CompletionBody, EmbeddingBody, Fields, Many, Tools
from pteron.serving.http.errors import ApiError, invalid_value, ollama_body, validated
from pteron.serving.http.json_body import JsonRoute
from pteron.serving.http.server_state import ServerState, open_request, server_of
from pteron.serving.http.sse import encode_json
from pteron.serving.prompt.chat import format_of, prepare_chat

router = APIRouter(route_class=JsonRoute)
_OPTIONS = ("stop", *(name for name in OPTIONS if name in CompletionBody.model_fields))


class _Given(Fields):
    """Unknown fields are ignored, as ollama does."""

    model_config = ConfigDict(extra="ignore", strict=False)


class OllamaBody(_Given):
    model: str
    stream: bool = True
    format: dict[str, Any] | str | None = None
    options: dict[str, Any] | None = None
    think: bool | str | None = None


class OllamaFunction(_Given):
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class OllamaCall(_Given):
    function: OllamaFunction


class OllamaMessage(_Given):
    role: str
    content: str = ""
    thinking: str | None = None
    images: Annotated[list[str], Many] | None = None
    tool_calls: list[OllamaCall] | None = None
    tool_name: str | None = None


class OllamaChatBody(OllamaBody):
    """POST /api/chat"""

    messages: Annotated[list[OllamaMessage], Many] = Field(default_factory=list)
    tools: Annotated[list[dict[str, Any]], Tools] | None = None


class OllamaGenerateBody(OllamaBody):
    """POST /api/generate"""

    prompt: str = ""
    system: str | None = None
    raw: bool = False
    images: Annotated[list[str], Many] | None = None


class OllamaEmbedBody(_Given):
    """POST /api/embed"""

    model: str
    input: str | list[str]
    dimensions: int | None = None


class ShowBody(_Given):
    """POST /api/show"""

    model: str | None = None
    name: str | None = None


@router.post("/api/chat")
async def chat(request: Request, body: OllamaChatBody) -> Response:
    body.model = _name(request, body.model)
    if not body.messages:  # a client asks for the model to be loaded
        return await _loaded(request, body.model, {"message": {"role": "assistant", "content": ""}})
    messages = [_message(message) for message in body.messages]
    fields = {"messages": messages, "tools": body.tools, "continue_final_message": is_begun(messages)}
    return await _respond_chat(request, body, fields, is_chat=True)


@router.post("/api/generate")
async def generate(request: Request, body: OllamaGenerateBody) -> Response:
    body.model = _name(request, body.model)
    if not body.prompt and not body.images:  # as in `chat`
        return await _loaded(request, body.model, {"response": ""})
    if not body.raw:
        system = [{"role": "system", "content": body.system}] if body.system else []
        messages = [*system, {"role": "user", "content": _content(body.prompt, body.images)}]
        return await _respond_chat(request, body, {"messages": messages}, is_chat=False)
    if body.images:
        raise invalid_value("images need the chat template: send them without raw", "images")
    fields = _fields(body, "max_tokens") | {"prompt": body.prompt}
    fields.setdefault("max_tokens", server_of(request).limits.new_tokens)
    generation = await prepare_completion(request, validated(CompletionBody, fields))
    return await generation.respond(OllamaWriter(generation, is_chat=False), stream=body.stream)


@router.get("/api/version")
async def version() -> dict[str, str]:
    return {"version": pteron.__version__}


@router.post("/api/embed")
async def embed(request: Request, body: OllamaEmbedBody) -> dict[str, Any]:
    fields = body.model_dump() | {"model": _name(request, body.model)}
    vectors, record = await embed_texts(request, validated(EmbeddingBody, fields))
    return {
        "model": record.model,
        "embeddings": [vector.tolist() for vector in vectors],
        "total_duration": int(record.seconds * 1e9),
        "load_duration": 0,
        "prompt_eval_count": record.prompt_tokens,
    }


@router.get("/api/tags")
async def tags(request: Request) -> dict[str, Any]:
    server = server_of(request)
    return {"models": _models(server, server.models.names)}


@router.get("/api/ps")
async def running_models(request: Request) -> dict[str, Any]:
    server = server_of(request)
    return {"models": _models(server, [model.names[0] for model in server.models.loaded])}


@router.post("/api/show")
async def show(request: Request, body: ShowBody) -> dict[str, Any]:
    model, _ = await open_request(request, _name(request, body.model or body.name or ""))
    template = model.llm.tokenizer.chat_template if model.engine else None
    context = model.llm.model.context if model.engine else 0
    info = {"general.architecture": "pteron", "pteron.context_length": context}
    can = ["completion"] if model.engine else []
    format = format_of(model.llm) if model.engine else AnswerFormat()
    can += ["vision"] if model.engine and model.llm.reads_images else []
    can += ["tools"] if format.calls else []
    can += ["thinking"] if format.reasoning else []
    can += ["embedding"] if model.embedder else []
    shown: dict[str, Any] = {"modelfile": "", "parameters": "", "template": template or ""}
    shown |= {"details": _details(), "model_info": info, "capabilities": can}
    return shown | {"modified_at": _time(model.server.created)}


def _models(server: ServerState, names: Sequence[str]) -> list[dict[str, Any]]:
    fields = {"modified_at": _time(server.created), "size": 0, "digest": "", "details": _details()}
    return [{"name": name, "model": name, **fields} for name in names]


def _details() -> dict[str, Any]:
    return {"format": "pte", "family": "pteron", "parameter_size": "", "quantization_level": ""}


def _name(request: Request, name: str) -> str:
    """A model's name; ollama's clients add a tag."""
    server = server_of(request)
    name = name if name in server.models.names else name.removesuffix(":latest")
    server.check_name(name)
    return name


def _message(message: OllamaMessage) -> dict[str, Any]:
    content = _content(message.content, message.images)
    found: dict[str, Any] = {"role": message.role, "content": content}
    if message.tool_calls:
        functions = [call.function for call in message.tool_calls]
        found["tool_calls"] = [
            {"type": "function", "function": {"name": each.name, "arguments": json.dumps(each.arguments)}}
            for each in functions
        ]
    found |= {"reasoning_content": message.thinking} if message.thinking else {}
    return found | ({"name": message.tool_name} if message.tool_name else {})


def _content(text: str, images: list[str] | None) -> str | list[dict[str, Any]]:
    """Images, which are in base64, and the text behind them."""
    if not images:
        return text
    urls = [data if data.startswith("data:") else f"data:image/*;base64,{data}" for data in images]
    parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return [*parts, {"type": "text", "text": text}]


def _fields(body: OllamaBody, length: str) -> dict[str, Any]:
    """The fields that all of OpenAI's bodies share. Options of ollama's own engine have no effect."""
    options = body.options or {}
    fields: dict[str, Any] = {name: options[name] for name in _OPTIONS if options.get(name) is not None}
    if options.get("repeat_penalty") is not None:
        fields["repetition_penalty"] = options["repeat_penalty"]
    count = options.get("num_predict")
    if count is not None and type(count) is not int:
        raise invalid_value("options.num_predict must be an integer", "options")
    if count is not None and count > 0:  # -1 and -2: no limit of its own
        fields[length] = count
    if body.format == "json":
        fields["response_format"] = {"type": "json_object"}
    elif isinstance(body.format, dict):
        schema = {"name": "output", "schema": body.format}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif body.format:
        raise invalid_value('format must be "json" or a JSON schema', "format")
    return fields | {"model": body.model}


async def _respond_chat(
    request: Request, body: OllamaBody, fields: dict[str, Any], *, is_chat: bool
) -> Response:
    fields = _fields(body, "max_completion_tokens") | fields
    if body.think is not None:
        fields["chat_template_kwargs"] = {"enable_thinking": bool(body.think)}
        if isinstance(body.think, str):
            fields["chat_template_kwargs"]["reasoning_effort"] = body.think
    generation = await prepare_chat(request, validated(ChatBody, fields))
    return await generation.respond(OllamaWriter(generation, is_chat=is_chat), stream=body.stream)


async def _loaded(request: Request, model: str, content: dict[str, Any]) -> Response:
    await open_request(request, model)
    fields = {"model": model, "created_at": _time(), "done": True, "done_reason": "load"}
    return JSONResponse(fields | content)


class OllamaWriter:
    """`is_chat`: parts of a message, otherwise of a text."""

    media_type = "application/x-ndjson"

    def __init__(self, generation: Generation, *, is_chat: bool) -> None:
        self._generation = generation
        (self._answer,) = generation.answers
        self._is_chat = is_chat

    def start(self) -> Iterator[bytes]:
        yield from ()

    def write(self, index: int, change: Change) -> Iterator[bytes]:
        match change:
            case Delta(Block("text"), text) if text:
                yield self._line(self._part(text))
            case Delta(Block("thought"), text):
                yield self._line(self._part("", text))
            case Close(Block("call") as call):  # a call is one part: its arguments are an object
                message = {"role": "assistant", "content": "", "tool_calls": [_call(call)]}
                yield self._line({"message": message})

    def end(self) -> Iterator[bytes]:
        yield self._line(self._part("") | self._last())

    def fail(self, error: ApiError) -> Iterator[bytes]:
        yield encode_json(ollama_body(error)) + b"\n"

    def body(self) -> dict[str, Any]:
        whole = self._part(self._answer.joined("text"), self._answer.joined("thought"))
        if calls := self._answer.calls:
            whole["message"]["tool_calls"] = [_call(call) for call in calls]
        return {"model": self._generation.record.model, "created_at": _time(), **whole, **self._last()}

    def _part(self, text: str, thinking: str = "") -> dict[str, Any]:
        thought = {"thinking": thinking} if thinking else {}
        message = {"role": "assistant", "content": text, **thought}
        return {"message": message} if self._is_chat else {"response": text, **thought}

    def _last(self) -> dict[str, Any]:
        counts, record = self._generation, self._generation.record
        seconds = record.seconds
        first = record.first_token_seconds or seconds
        return {
            "done": True,
            "done_reason": "length" if self._answer.end.reason == "length" else "stop",
            "total_duration": int(seconds * 1e9),
            "load_duration": 0,
            "prompt_eval_count": counts.prompt_tokens,
            "prompt_eval_duration": int(first * 1e9),
            "eval_count": counts.new_tokens,
            "eval_duration": int((seconds - first) * 1e9),
        }

    def _line(self, fields: dict[str, Any]) -> bytes:
        head = {"model": self._generation.record.model, "created_at": _time(), "done": False}
        return encode_json({**head, **fields}) + b"\n"


def _call(call: Block) -> dict[str, Any]:
    return {"function": {"name": call.name, "arguments": parsed_arguments(call.text)}}


def _time(seconds: float | None = None) -> str:
    moment = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat().replace("+00:00", "Z")
