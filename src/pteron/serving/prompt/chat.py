"""ChatBody -> engine requests and parsers of their answers.

ChatBody, the body of /v1/chat/completions, is the form of a conversation for all APIs: each translates its
own body into one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from fastapi import Request

from pteron.errors import InputError
from pteron.llm.engine import Request as EngineRequest
from pteron.llm.text_model import TextModel
from pteron.serving.answer.format import AnswerFormat, answer_format
from pteron.serving.answer.generation import Generation
from pteron.serving.answer.parser import AnswerParser, control_tags
from pteron.serving.api.schema import (
    ChatBody,
    CompletionBody,
    Message,
    NamedTool,
    TemplateBody,
    TokenizeBody,
    Tool,
)
from pteron.serving.http.disconnect import run_in_thread
from pteron.serving.http.errors import invalid_value
from pteron.serving.http.request_log import RequestRecord
from pteron.serving.http.server_state import LoadedModel, open_request
from pteron.serving.prompt.encoding import RenderedChat, encode_rendered, render_chat
from pteron.serving.prompt.sampling_params import (
    check_choices,
    check_schema_size,
    compile_grammar,
    engine_requests,
    response_grammar,
)
from pteron.serving.prompt.tool_grammar import forced_grammar, lazy_grammar

Prepared = TypeVar("Prepared", ChatBody, CompletionBody, TokenizeBody, TemplateBody)
Result = TypeVar("Result")
Work: TypeAlias = Callable[[LoadedModel, RequestRecord, Prepared], Result]


@dataclass(frozen=True, slots=True)
class _OfferedTools:
    """The tools that an answer may call; with `is_forced` it must call one."""

    tools: Sequence[Tool] = ()
    is_forced: bool = False


def format_of(llm: TextModel) -> AnswerFormat:
    """The form of a model's answers."""
    return answer_format(llm.tokenizer.chat_template, *llm.tokenizer.bos_eos)


async def prepare(request: Request, body: Prepared, work: Work[Prepared, Result]) -> Result:
    """What `work` makes of a body for its model. In a thread: rendering and encoding a long conversation
    would block the event loop of all streams."""
    model, record = await open_request(request, body.model)
    has_images = any(message.has_images for message in getattr(body, "messages", None) or ())
    # A small file may have 50 million pixels: few requests read images at the same time.
    limiter = model.server.imaging if has_images else None
    return await run_in_thread(request.receive, work, model, record, body, limiter=limiter)


async def prepare_chat(request: Request, body: ChatBody) -> Generation:
    """The answers to a conversation, not yet begun."""
    return Generation(request, *await prepare(request, body, _chat_requests))


def encode_chat(model: LoadedModel, record: RequestRecord, body: ChatBody) -> tuple[int, ...]:
    """The tokens of a conversation's prompt."""
    rendered = render(model, body, _offered_tools(body, model).tools)
    return encode_rendered(model.llm, rendered, model.server.limits)


def _chat_requests(
    model: LoadedModel, record: RequestRecord, body: ChatBody
) -> tuple[list[EngineRequest], list[AnswerParser]]:
    """The engine requests of a conversation, one per choice, and the parsers of their answers."""
    if model.server.logs.with_prompts:
        record.prompt = [_logged(message) for message in body.messages]
    llm, limits, format = model.llm, model.server.limits, format_of(model.llm)
    offered = _offered_tools(body, model)
    if body.top_logprobs and not body.logprobs:
        raise invalid_value("top_logprobs needs logprobs", "top_logprobs")
    check_choices(body, 1, limits)
    parameters = {tool.function.name: tool.function.parameters for tool in offered.tools}
    controls, parallel = control_tags(format, llm.tokenizer), body.parallel_tool_calls is not False
    prompt = render(model, body, offered.tools)
    is_thinking = format.reasoning is not None and format.reasoning.is_open(prompt.text)
    if offered.is_forced and format.calls:
        try:
            several = parallel and not format.is_harmony
            source = forced_grammar(parameters, format.calls, parallel=several, controls=controls)
        except InputError as error:
            raise invalid_value(str(error), "tools", code="invalid_json_schema") from error
        grammar = compile_grammar("lark", source, llm, "tools", limits)
    else:
        grammar = response_grammar(body, llm, limits)
    if is_thinking and grammar and format.reasoning:  # the answer begins at once
        prompt, is_thinking = prompt + f"{format.reasoning.closing}\n\n", False
    if offered.is_forced and format.calls:
        prompt += format.calls.prefix
    elif grammar is None and not all(tool.function.strict is False for tool in offered.tools):
        grammar = _lazy_grammar(llm, format, parameters, parallel, is_thinking, controls)
    requests = engine_requests(
        model,
        record,
        body,
        [encode_rendered(llm, prompt, limits)],
        new_tokens=body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
        # At least one alternative: it marks a piece as a token. Text held back to the end has none.
        top_logprobs=max(1, body.top_logprobs or 0) if body.logprobs else 0,
        grammar=grammar,
        stops=() if body.ignore_eos else llm.chat_stops,
        images=prompt.images,
    )
    return requests, [
        AnswerParser(
            format,
            parameters,
            controls=controls,
            is_thinking=is_thinking,
            is_call=offered.is_forced,
            one_call=not parallel,
        )
        for _ in requests
    ]


def _lazy_grammar(
    llm: TextModel,
    format: AnswerFormat,
    parameters: Mapping[str, Mapping[str, Any] | None],
    parallel: bool,
    is_thinking: bool,
    controls: Mapping[int, str],
) -> Any:
    """The grammar of an answer that may call tools. Schemas that grammars do not support, or that are too
    large, leave arguments any objects."""
    from pteron.llm.grammar import Grammar  # here: an optional package

    for schemas in (parameters, dict.fromkeys(parameters)):
        with suppress(InputError):
            source = lazy_grammar(
                schemas, format, parallel=parallel, is_thinking=is_thinking, controls=controls
            )
            return Grammar.lark(llm.tokenizer, source, eos_ids=llm.eos_ids) if source else None
    return None


def _logged(message: Message) -> dict[str, Any]:
    """A message for the log, without the data of its images."""
    found = message.model_dump(exclude_none=True)
    for part in found["content"] if message.has_images else ():
        if "image_url" in part:
            url = part["image_url"]["url"]
            part["image_url"]["url"] = f"{url[:32]}... ({len(url)} characters)"
    return found


def render(model: LoadedModel, body: ChatBody, tools: Sequence[Tool]) -> RenderedChat:
    """A conversation as the chat template writes it."""
    index = next((index for index, message in enumerate(body.messages) if message.has_images), None)
    if index is not None and not model.llm.reads_images:
        message = f"{model.names[0]} reads no images: it has no vision part"
        raise invalid_value(message, f"messages.{index}.content", code="no_images")
    effort = body.reasoning_effort
    variables: dict[str, Any] = {}
    if effort is not None:
        variables = {"reasoning_effort": effort, "enable_thinking": effort != "none"}
    for name in ("add_generation_prompt", "continue_final_message"):
        if (value := getattr(body, name)) is not None:
            variables[name] = value
    variables |= body.chat_template_kwargs or {}
    calls = format_of(model.llm).calls
    as_text = calls is not None and calls.as_text
    return render_chat(model.llm, body.messages, tools, variables, model.server.limits, as_text=as_text)


def _offered_tools(body: ChatBody, model: LoadedModel) -> _OfferedTools:
    if not body.tools:
        if body.tool_choice not in (None, "none", "auto"):
            raise invalid_value("tool_choice needs tools", "tool_choice")
        return _OfferedTools()
    if format_of(model.llm).calls is None:
        raise invalid_value("this model's chat template does not support tools", "tools", code="no_tools")
    check_schema_size([tool.function.parameters for tool in body.tools], "tools", model.server.limits)
    names = [tool.function.name for tool in body.tools]
    if len(set(names)) < len(names):
        raise invalid_value("two tools have the same name", "tools")
    if body.tool_choice == "none":
        return _OfferedTools()
    if isinstance(body.tool_choice, NamedTool):
        name = body.tool_choice.function.name
        if name not in names:
            raise invalid_value(f"there is no tool {name!r}", "tool_choice")
        return _OfferedTools([tool for tool in body.tools if tool.function.name == name], True)
    return _OfferedTools(body.tools, body.tool_choice == "required")
