"""POST /v1/completions: the continuation of a text, or of tokens."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from pteron.llm import Piece
from pteron.llm.engine import Request as EngineRequest
from pteron.serving.http.answers import Answers
from pteron.serving.http.chat_response import FINGERPRINT
from pteron.serving.http.logprobs import CompletionLogprobs
from pteron.serving.http.prompts import as_list, encode_prompts
from pteron.serving.http.responses import respond
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
    logprobs = [
        None if body.logprobs is None else CompletionLogprobs(tokenizer, body.logprobs) for _ in requests
    ]
    prompts = len(as_list(body.prompt, "prompt"))
    response = CompletionResponse(service.names[0], prompts, logprobs)
    return await respond(request, service, record, answers, response, body)


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


class CompletionResponse:
    """A text completion of several choices."""

    def __init__(self, model: str, prompts: int, logprobs: list[CompletionLogprobs | None]) -> None:
        self.prompts = prompts
        self._logprobs = logprobs
        self._texts = ["" for _ in logprobs]
        self._reasons: list[str | None] = [None for _ in logprobs]
        self._head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": FINGERPRINT,
        }

    def opening(self) -> Iterator[dict[str, Any]]:
        yield from ()

    def add(self, index: int, piece: Piece) -> Iterator[dict[str, Any]]:
        self._texts[index] += piece.text
        collected = self._logprobs[index]
        added = collected.add(piece) if collected else None
        if piece.text or (added and added["tokens"]):
            yield self._chunk(index, piece.text, added, None)

    def end(self, index: int, reason: str) -> Iterator[dict[str, Any]]:
        self._reasons[index] = reason
        yield self._chunk(index, "", None, reason)

    def usage_chunk(self, usage: dict[str, Any]) -> dict[str, Any]:
        return {**self._head, "choices": [], "usage": usage}

    def body(self, usage: dict[str, Any]) -> dict[str, Any]:
        choices = [
            {
                "index": index,
                "text": text,
                "logprobs": collected.all if (collected := self._logprobs[index]) else None,
                "finish_reason": self._reasons[index],
            }
            for index, text in enumerate(self._texts)
        ]
        return {**self._head, "choices": choices, "usage": usage}

    def texts(self) -> list[str]:
        return self._texts

    def _chunk(self, index: int, text: str, added: Any, reason: str | None) -> dict[str, Any]:
        choice = {"index": index, "text": text, "logprobs": added, "finish_reason": reason}
        return {**self._head, "choices": [choice]}
