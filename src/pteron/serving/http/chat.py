"""ChatBody -> engine requests and parsers of their answers.

ChatBody, the body of /v1/chat/completions, is the form of a conversation for all APIs: each translates its
own body into one.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from pteron.llm.engine import Request as EngineRequest
from pteron.serving.http.errors import invalid_value
from pteron.serving.http.parts import AnswerParser
from pteron.serving.http.prompts import encode_chat
from pteron.serving.http.sampling_params import (
    check_schema_size,
    choice_count,
    compile_grammar,
    engine_requests,
    new_token_count,
    response_grammar,
    sampling_params,
    stop_strings,
)
from pteron.serving.http.schema import ChatBody, NamedTool, Tool
from pteron.serving.http.service import Service, open_request
from pteron.serving.http.tool_calls import ToolCallFormat, ToolCallParser, tool_call_format, tool_call_schema


@dataclass(frozen=True, slots=True)
class _OfferedTools:
    """The tools that an answer may call; with `is_forced` it must call one."""

    format: ToolCallFormat
    tools: list[Tool]
    is_forced: bool

    @property
    def opening(self) -> str:
        """The beginning of an answer that must be a tool call."""
        return f"{self.format.opening}\n" if self.is_forced and self.format.opening else ""

    def parser(self) -> ToolCallParser:
        names = {tool.function.name for tool in self.tools}
        return ToolCallParser(names, self.format, is_call=self.is_forced)


async def prepare_chat(request: Request, body: ChatBody) -> tuple[list[EngineRequest], list[AnswerParser]]:
    """The engine requests of a conversation, one per choice, and the parsers of their answers."""
    service, record = open_request(request, body.model)
    if service.logs.with_prompts:
        record.prompt = [message.model_dump(exclude_none=True) for message in body.messages]
    offered = _offered_tools(body, service)
    # In a thread: rendering and encoding a long conversation would block the event loop of all streams.
    seconds = service.limits.seconds - record.seconds
    requests = await run_in_threadpool(_requests, body, service, offered, seconds)
    one_call = body.parallel_tool_calls is False
    return requests, [
        AnswerParser(offered.parser() if offered else None, one_call=one_call) for _ in requests
    ]


async def count_tokens(request: Request, body: ChatBody) -> int:
    """The tokens of a conversation's prompt."""
    service, _ = open_request(request, body.model)
    offered = _offered_tools(body, service)
    return len(await run_in_threadpool(_encode, body, service, offered))


def _requests(
    body: ChatBody, service: Service, offered: _OfferedTools | None, seconds: float
) -> list[EngineRequest]:
    llm, limits = service.llm, service.limits
    if body.top_logprobs and not body.logprobs:
        raise invalid_value("top_logprobs needs logprobs", "top_logprobs")
    count = choice_count(body.n, 1, limits)
    param = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    new_tokens = new_token_count(getattr(body, param), limits.new_tokens, param, limits)
    # At least one alternative: it marks a piece as a token. Text held back to the end has none.
    sampling = sampling_params(body, llm, max(1, body.top_logprobs or 0) if body.logprobs else 0)
    if offered and offered.is_forced:
        parameters = {tool.function.name: tool.function.parameters for tool in offered.tools}
        schema = tool_call_schema(parameters, offered.format)
        grammar = compile_grammar("json_schema", schema, llm, "tools", limits)
    else:
        grammar = response_grammar(body, llm, limits)
    return engine_requests(
        [_encode(body, service, offered)],
        count,
        sampling,
        max_new_tokens=new_tokens,
        stop=(*stop_strings(body, limits), *llm.chat_stops),
        grammar=grammar,
        seconds=max(seconds, 0.001),
        adapter=body.model if body.model in service.adapters else None,
    )


def _encode(body: ChatBody, service: Service, offered: _OfferedTools | None) -> tuple[int, ...]:
    tools, opening = (offered.tools, offered.opening) if offered else ([], "")
    variables = body.chat_template_kwargs or {}
    return encode_chat(service.llm, body.messages, tools, variables, opening, service.limits)


def _offered_tools(body: ChatBody, service: Service) -> _OfferedTools | None:
    """The tools of a request; None if there are none, or none may be called."""
    if not body.tools:
        if body.tool_choice not in (None, "none", "auto"):
            raise invalid_value("tool_choice needs tools", "tool_choice")
        return None
    format = tool_call_format(service.llm.tokenizer.chat_template)
    if format is None:
        raise invalid_value("this model's chat template does not support tools", "tools", code="no_tools")
    check_schema_size([tool.function.parameters for tool in body.tools], "tools", service.limits)
    names = [tool.function.name for tool in body.tools]
    if len(set(names)) < len(names):
        raise invalid_value("two tools have the same name", "tools")
    if body.tool_choice == "none":
        return None
    if isinstance(body.tool_choice, NamedTool):
        name = body.tool_choice.function.name
        if name not in names:
            raise invalid_value(f"there is no tool {name!r}", "tool_choice")
        return _OfferedTools(format, [tool for tool in body.tools if tool.function.name == name], True)
    return _OfferedTools(format, body.tools, body.tool_choice == "required")
