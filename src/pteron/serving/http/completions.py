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
from pteron.serving.http.chat_shape import FINGERPRINT
from pteron.serving.http.drawing import choices_of, nth, sampling_of, stops_of, tokens_of
from pteron.serving.http.errors import ApiError
from pteron.serving.http.logprobs import CompletionLogprobs
from pteron.serving.http.prompts import prompt_ids, several
from pteron.serving.http.responding import respond
from pteron.serving.http.schema import CompletionBody
from pteron.serving.http.service import Service, record_of, service_of

router = APIRouter()
TOKENS = 16  # of a completion that names no number, as OpenAI has it


@router.post("/v1/completions")
async def complete(request: Request, body: CompletionBody) -> Response:
    service, record = service_of(request), record_of(request)
    service.check_name(body.model)
    record.model = service.names[0]
    if service.logs.with_prompts:
        record.prompt = body.prompt
    tokenizer = service.writer.llm.tokenizer
    seconds = service.limits.seconds - record.seconds
    wanted, prompts = await run_in_threadpool(_wanted, body, service, seconds)
    answers = Answers(service, record, wanted)
    logprobs = [
        None if body.logprobs is None else CompletionLogprobs(tokenizer, body.logprobs) for _ in wanted
    ]
    shape = CompletionShape(service.names[0], prompts, logprobs)
    return await respond(request, service, record, answers, shape, bool(body.stream), body.stream_options)


def _wanted(body: CompletionBody, service: Service, seconds: float) -> tuple[list[EngineRequest], int]:
    """What the engine is asked for, prompt by prompt, and how many of these there are."""
    llm, limits = service.llm, service.limits
    if body.stream_options and not body.stream:
        raise ApiError(400, "stream_options goes with stream", param="stream_options", code="invalid_value")
    count = choices_of(body.n, len(several(body.prompt, "prompt")), limits)
    tokens = tokens_of(body.max_tokens, TOKENS, "max_tokens", limits)
    sampling = sampling_of(body, llm, 0 if body.logprobs is None else max(1, body.logprobs))
    stops = stops_of(body, limits)
    prompts = prompt_ids(llm, body.prompt, limits)
    wanted = [
        EngineRequest(
            ids,
            max_new_tokens=tokens,
            sampling=nth(sampling, number),
            stop=stops,
            seconds=max(seconds, 0.001),
        )
        for ids in prompts
        for number in range(count)
    ]
    return wanted, len(prompts)


class CompletionShape:
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

    def take(self, index: int, piece: Piece) -> Iterator[dict[str, Any]]:
        self._texts[index] += piece.text
        kept = self._logprobs[index]
        added = kept.take(piece) if kept else None
        if piece.text or (added and added["tokens"]):
            yield self._chunk(index, piece.text, added, None)

    def end(self, index: int, reason: str) -> Iterator[dict[str, Any]]:
        self._reasons[index] = reason
        yield self._chunk(index, "", None, reason)

    def usage(self, usage: dict[str, Any]) -> dict[str, Any]:
        return {**self._head, "choices": [], "usage": usage}

    def whole(self, usage: dict[str, Any]) -> dict[str, Any]:
        choices = [
            {
                "index": index,
                "text": text,
                "logprobs": kept.all if (kept := self._logprobs[index]) else None,
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
