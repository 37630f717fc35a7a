"""POST /v1/chat/completions: the assistant's next turn of a conversation."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from pteron.llm.engine import Request as EngineRequest
from pteron.serving.http.answers import Answers
from pteron.serving.http.chat_shape import ChatChoice, ChatShape
from pteron.serving.http.drawing import (
    check_size,
    choices_of,
    grammar_of,
    nth,
    sampling_of,
    schema_grammar,
    stops_of,
    tokens_of,
)
from pteron.serving.http.errors import ApiError
from pteron.serving.http.prompts import chat_ids
from pteron.serving.http.responding import respond
from pteron.serving.http.schema import ChatBody, NamedTool, Tool
from pteron.serving.http.service import Service, record_of, service_of
from pteron.serving.http.tools import Form, ToolReader, call_schema, form_of

router = APIRouter()


@dataclass(frozen=True, slots=True)
class _Offer:
    """The tools that an answer may call, or must."""

    form: Form
    tools: list[Tool]
    is_forced: bool

    @property
    def opening(self) -> str:
        """What an answer begins with that must be a call."""
        return f"{self.form.opening}\n" if self.is_forced and self.form.opening else ""

    def reader(self) -> ToolReader:
        names = {tool.function.name for tool in self.tools}
        return ToolReader(names, self.form, is_call=self.is_forced)


@router.post("/v1/chat/completions")
async def chat(request: Request, body: ChatBody) -> Response:
    service, record = service_of(request), record_of(request)
    service.check_name(body.model)
    record.model = service.names[0]
    if service.logs.with_prompts:
        record.prompt = [message.model_dump(exclude_none=True) for message in body.messages]
    engine = service.writer
    offer = _offer(body, service)
    # Rendering and encoding take a while for long conversations: not on the loop that all streams share.
    wanted = await run_in_threadpool(_wanted, body, service, offer, service.limits.seconds - record.seconds)
    answers = Answers(service, record, wanted)
    alternatives = (body.top_logprobs or 0) if body.logprobs else None
    choices = [
        ChatChoice(
            offer.reader() if offer else None,
            engine.llm.tokenizer,
            alternatives,
            one_call=body.parallel_tool_calls is False,
        )
        for _ in wanted
    ]
    shape = ChatShape(service.names[0], choices)
    return await respond(request, service, record, answers, shape, bool(body.stream), body.stream_options)


def _wanted(body: ChatBody, service: Service, offer: _Offer | None, seconds: float) -> list[EngineRequest]:
    """What the engine is asked for, once for each choice."""
    llm, limits = service.llm, service.limits
    if body.top_logprobs and not body.logprobs:
        raise ApiError(400, "top_logprobs goes with logprobs", param="top_logprobs", code="invalid_value")
    if body.stream_options and not body.stream:
        raise ApiError(400, "stream_options goes with stream", param="stream_options", code="invalid_value")
    count = choices_of(body.n, 1, limits)
    param = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    tokens = tokens_of(getattr(body, param), limits.new_tokens, param, limits)
    # Each token is reported with alternatives, at least itself: text held back to the end has none.
    sampling = sampling_of(body, llm, max(1, body.top_logprobs or 0) if body.logprobs else 0)
    stops = (*stops_of(body, limits), *llm.chat_stops)
    if offer and offer.is_forced:
        parameters = {tool.function.name: tool.function.parameters for tool in offer.tools}
        grammar = schema_grammar(call_schema(parameters, offer.form), llm, "tools", limits)
    else:
        grammar = grammar_of(body.response_format, llm, limits)
    ids = chat_ids(
        llm,
        body.messages,
        offer.tools if offer else [],
        body.chat_template_kwargs or {},
        offer.opening if offer else "",
        limits,
    )
    return [
        EngineRequest(
            ids,
            max_new_tokens=tokens,
            sampling=nth(sampling, number),
            stop=stops,
            grammar=grammar,
            seconds=max(seconds, 0.001),
        )
        for number in range(count)
    ]


def _offer(body: ChatBody, service: Service) -> _Offer | None:
    """The tools of a request, checked; None where there are none, or none is to be called."""
    if not body.tools:
        if body.tool_choice not in (None, "none", "auto"):
            raise ApiError(400, "tool_choice goes with tools", param="tool_choice", code="invalid_value")
        return None
    form = form_of(service.llm.tokenizer.chat_template)
    if form is None:
        message = "this model's chat template has no place for tools"
        raise ApiError(400, message, param="tools", code="no_tools")
    check_size([tool.function.parameters for tool in body.tools], "tools", service.limits)
    names = [tool.function.name for tool in body.tools]
    if len(set(names)) < len(names):
        raise ApiError(400, "two tools have one name", param="tools", code="invalid_value")
    if body.tool_choice == "none":
        return None
    if isinstance(body.tool_choice, NamedTool):
        name = body.tool_choice.function.name
        if name not in names:
            raise ApiError(400, f"there is no tool {name!r}", param="tool_choice", code="invalid_value")
        return _Offer(form, [tool for tool in body.tools if tool.function.name == name], True)
    return _Offer(form, body.tools, body.tool_choice == "required")
