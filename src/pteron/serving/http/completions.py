"""POST /v1/completions: the continuation of a text, or of tokens."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from pteron.llm.engine import Request as EngineRequest
from pteron.serving.http.choices import CompletionChoice
from pteron.serving.http.prompts import as_list, encode_prompts
from pteron.serving.http.responses import ResponseBuilder
from pteron.serving.http.sampling_params import (
    choice_count,
    engine_requests,
    new_token_count,
    sampling_params,
    stop_strings,
)
from pteron.serving.http.schema import CompletionBody
from pteron.serving.http.service import Service, open_request

router = APIRouter()
TOKENS = 16  # OpenAI's default of `max_tokens`


@router.post("/v1/completions")
async def complete(request: Request, body: CompletionBody) -> Response:
    service, record = open_request(request, body.model)
    if service.logs.with_prompts:
        record.prompt = body.prompt
    tokenizer = service.llm.tokenizer
    seconds = service.limits.seconds - record.seconds
    requests = await run_in_threadpool(_engine_requests, body, service, seconds)
    choices = [CompletionChoice(tokenizer, body.logprobs) for _ in requests]
    kinds = ("cmpl", "text_completion", "text_completion")
    prompts = len(as_list(body.prompt, "prompt"))
    return await ResponseBuilder(request, requests, choices, kinds, prompts).respond(body)


def _engine_requests(body: CompletionBody, service: Service, seconds: float) -> list[EngineRequest]:
    llm, limits = service.llm, service.limits
    count = choice_count(body.n, len(as_list(body.prompt, "prompt")), limits)
    return engine_requests(
        encode_prompts(llm, body.prompt, limits),
        count,
        sampling_params(body, llm, 0 if body.logprobs is None else max(1, body.logprobs)),
        max_new_tokens=new_token_count(body.max_tokens, TOKENS, "max_tokens", limits),
        stop=stop_strings(body, limits),
        seconds=max(seconds, 0.001),
    )
