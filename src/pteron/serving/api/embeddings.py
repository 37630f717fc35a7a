"""POST /v1/embeddings: texts as vectors, if the model is an encoder or gives hidden states."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from pteron.embeddings.encoder import Embedder, Vector
from pteron.errors import InputError
from pteron.serving.api.schema import EmbeddingBody
from pteron.serving.http.disconnect import check_client, run_in_thread
from pteron.serving.http.errors import ApiError, invalid_value
from pteron.serving.http.json_body import JsonRoute
from pteron.serving.http.request_log import RequestRecord
from pteron.serving.http.server_state import LoadedModel, open_request
from pteron.serving.prompt.encoding import as_list, count_slices

router = APIRouter(route_class=JsonRoute)
Given = TypeVar("Given")
Result = TypeVar("Result")


@router.post("/v1/embeddings")
async def embed(request: Request, body: EmbeddingBody) -> Response:
    vectors, record = await embed_texts(request, body)
    as_base64 = body.encoding_format == "base64"
    encoded = [_base64(vector) if as_base64 else vector.tolist() for vector in vectors]
    data = [{"object": "embedding", "index": index, "embedding": each} for index, each in enumerate(encoded)]
    usage = {"prompt_tokens": record.prompt_tokens, "total_tokens": record.prompt_tokens}
    content: dict[str, Any] = {"object": "list", "data": data, "model": record.model, "usage": usage}
    return JSONResponse(content)


async def embed_texts(request: Request, body: EmbeddingBody) -> tuple[list[Vector], RequestRecord]:
    """The vectors of a request's texts."""
    model, record = await open_request(request, body.model)
    embedder = embedder_of(model, body.model)
    if embedder.scores_pairs:
        message = f"{model.names[0]} is a cross-encoder: it scores pairs of texts (/score, /v1/rerank)"
        raise invalid_value(message, "model", code="no_embeddings")
    texts = as_list(body.input, "input")
    check_count(len(texts), "input", model)
    if model.server.logs.with_prompts:
        record.prompt = body.input

    def embed_one(text: str | list[int]) -> tuple[Vector, int]:
        vector, tokens = embed_text(embedder, text)
        if body.dimensions not in (None, len(vector)):
            raise invalid_value(f"this model's vectors have {len(vector)} dimensions", "dimensions")
        return vector, tokens

    return await run_each(request, model, record, embed_one, texts, "input"), record


def embedder_of(model: LoadedModel, name: str | None) -> Embedder:
    """The embedder of a request's model; an error if it has none."""
    if model.embedder is None:
        message = f"{model.names[0]} does not support embeddings: its program gives no hidden states"
        raise invalid_value(message, "model", code="no_embeddings")
    if name in model.adapters:
        message = f"{name} is an adapter; embeddings are those of {model.names[0]}"
        raise invalid_value(message, "model", code="no_embeddings")
    return model.embedder


def check_count(count: int, param: str, model: LoadedModel) -> None:
    if count > model.server.limits.inputs:
        raise invalid_value(f"{count} texts; the limit is {model.server.limits.inputs} per request", param)


async def run_each(
    request: Request,
    model: LoadedModel,
    record: RequestRecord,
    work: Callable[[Given], tuple[Result, int]],
    given: Iterable[Given],
    param: str,
) -> list[Result]:
    """What `work` makes of each of `given`, in one worker thread of the model; it also returns tokens."""
    results: list[Result] = []

    def run(one: Given) -> tuple[Result, int]:
        check_client()  # it may have left while it waited
        return work(one)

    for one in given:  # one call each, so that requests take turns
        if record.seconds > model.server.limits.seconds:
            message = f"the texts took longer than {model.server.limits.seconds:g} seconds"
            raise ApiError(503, message, code="timeout")
        try:
            # Requests that wait for the worker occupy no thread of the pool.
            result, tokens = await run_in_thread(request.receive, run, one, limiter=model.worker)
        except InputError as error:
            raise invalid_value(str(error), param) from error
        record.counted.prompt_tokens += tokens
        results.append(result)
    record.choices = len(results)
    return results


def embed_text(embedder: Embedder, text: str | list[int]) -> tuple[Vector, int]:
    """The vector of a text, and its number of tokens. A text that is certainly too long is not encoded."""
    if isinstance(text, str):
        check_text(embedder, text)
    ids = embedder.encode(text) if isinstance(text, str) else text
    return embedder.embed(ids), len(ids)


def check_text(embedder: Embedder, text: str) -> None:
    """Raise for a text that is certainly too long, before all of it is encoded."""
    most = embedder.tokens_max
    if count_slices(embedder.encode, text, most) > most:
        raise InputError(f"the text must have from 1 to {most} tokens; it has more")


def _base64(vector: Vector) -> str:
    """Little-endian floats, OpenAI's compact encoding."""
    return base64.b64encode(vector.astype(np.dtype("<f4")).tobytes()).decode("ascii")
