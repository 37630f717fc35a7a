"""POST /v1/completions: the continuation of a text, or of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from pteron.llm import Piece
from pteron.llm.engine import Request as EngineRequest
from pteron.serving.http.answers import Answers
from pteron.serving.http.logprobs import CompletionLogprobs
from pteron.serving.http.prompts import as_list, encode_prompts
from pteron.serving.http.responses import ResponseBuilder, respond
from pteron.serving.http.sampling_params import (
    choice_count,
    engine_requests,
    new_token_count,
    sampling_params,
    stop_strings,
)
from pteron.serving.http.schema import CompletionBody
from pteron.serving.http.service import Service, get_record, get_service

router = APIRouter()
TOKENS = 16  # OpenAI's default of `max_tokens`


@router.post("/v1/completions")
async def complete(request: Request, body: CompletionBody) -> Response:
    service, record = get_service(request), get_record(request)
    service.check_name(body.model)
    record.model = service.names[0]
    if service.logs.with_prompts:
        record.prompt = body.prompt
    tokenizer = service.text_engine.llm.tokenizer
    seconds = service.limits.seconds - record.seconds
    requests = await run_in_threadpool(_engine_requests, body, service, seconds)
    answers = Answers(service, record, requests)
    choices = [
        CompletionChoice(None if body.logprobs is None else CompletionLogprobs(tokenizer, body.logprobs))
        for _ in requests
    ]
    builder = ResponseBuilder("cmpl", "text_completion", "text_completion", service.names[0], choices)
    prompts = len(as_list(body.prompt, "prompt"))
    return await respond(request, service, record, answers, builder, body, prompts)


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


class CompletionChoice:
    """The pieces of one answer -> its part of a text completion."""

    def __init__(self, logprobs: CompletionLogprobs | None) -> None:
        self._logprobs = logprobs
        self.content = ""
        self.reason: str | None = None

    def opening(self) -> Iterator[dict[str, Any]]:
        yield from ()

    def add(self, piece: Piece) -> Iterator[dict[str, Any]]:
        self.content += piece.text
        added = self._logprobs.add(piece) if self._logprobs else None
        if piece.text or (added and added["tokens"]):
            yield {"text": piece.text, "logprobs": added}

    def end(self, reason: str) -> Iterator[dict[str, Any]]:
        self.reason = reason
        yield {"text": "", "logprobs": None, "finish_reason": reason}

    def body(self) -> dict[str, Any]:
        logprobs = self._logprobs.all if self._logprobs else None
        return {"text": self.content, "logprobs": logprobs, "finish_reason": self.reason}
