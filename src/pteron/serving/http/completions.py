"""POST /v1/chat/completions: the assistant's next message of a conversation. POST /v1/completions: the
continuation of a text, or of tokens."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from pteron.llm.engine import Request as EngineRequest
from pteron.serving.http.answer_parser import AnswerParser
from pteron.serving.http.chat import prepare_chat
from pteron.serving.http.choices import ChatChoice, CompletionChoice, CompletionWriter
from pteron.serving.http.generation import Generation
from pteron.serving.http.json_body import JsonRoute
from pteron.serving.http.prompts import as_list, encode_prompts
from pteron.serving.http.sampling_params import (
    choice_count,
    engine_requests,
    new_token_count,
    response_grammar,
    sampling_params,
    stop_ids,
    stop_strings,
)
from pteron.serving.http.schema import ChatBody, CompletionBody
from pteron.serving.http.service import Service, open_request
from pteron.serving.http.sse import run_in_thread

router = APIRouter(route_class=JsonRoute)
TOKENS = 16  # OpenAI's default of `max_tokens` for completions


@router.post("/v1/chat/completions")
async def chat(request: Request, body: ChatBody) -> Response:
    requests, parsers = await prepare_chat(request, body)
    service, record = await open_request(request, body.model)
    alternatives = (body.top_logprobs or 0) if body.logprobs else None
    choices = [ChatChoice(service.llm.tokenizer, alternatives) for _ in requests]
    kinds = ("chatcmpl", "chat.completion", "chat.completion.chunk")
    writer = CompletionWriter(record.model, choices, kinds, body.stream_options)
    return await Generation(request, requests, parsers, writer).respond(stream=bool(body.stream))


@router.post("/v1/completions")
async def complete(request: Request, body: CompletionBody) -> Response:
    service, record = await open_request(request, body.model)
    if service.logs.with_prompts:
        record.prompt = body.prompt
    seconds = service.limits.seconds - record.seconds
    requests = await run_in_thread(request.receive, completion_requests, body, service, seconds)
    choices = [CompletionChoice(service.llm.tokenizer, body.logprobs) for _ in requests]
    kinds = ("cmpl", "text_completion", "text_completion")
    writer = CompletionWriter(record.model, choices, kinds, body.stream_options)
    prompts = len(as_list(body.prompt, "prompt"))
    parsers = [AnswerParser() for _ in requests]
    return await Generation(request, requests, parsers, writer, prompts).respond(stream=bool(body.stream))


def completion_requests(body: CompletionBody, service: Service, seconds: float) -> list[EngineRequest]:
    """The engine requests of a completion: `n` for each prompt."""
    llm, limits = service.llm, service.limits
    count = choice_count(body.n, len(as_list(body.prompt, "prompt")), limits)
    return engine_requests(
        encode_prompts(llm, body.prompt, limits),
        count,
        sampling_params(body, llm, 0 if body.logprobs is None else max(1, body.logprobs)),
        max_new_tokens=new_token_count(body.max_tokens, TOKENS, limits),
        stop=stop_strings(body, limits),
        stop_ids=stop_ids(body, llm),
        grammar=response_grammar(body, llm, limits),
        seconds=max(seconds, 0.001),
        adapter=body.model if body.model in service.adapters else None,
    )
