"""POST /v1/embeddings: texts as vectors, if the model is an encoder or gives hidden states."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from anyio import to_thread
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from pteron.errors import InputError
from pteron.serving.encoder import Embedder, Vector
from pteron.serving.http.errors import ApiError, invalid_value
from pteron.serving.http.prompts import as_list
from pteron.serving.http.request_log import CLIENT_CLOSED_REQUEST
from pteron.serving.http.schema import EmbeddingBody
from pteron.serving.http.service import open_request
from pteron.serving.http.sse import ClientDisconnected, run_until_disconnect

router = APIRouter()


@router.post("/v1/embeddings")
async def embed(request: Request, body: EmbeddingBody) -> Response:
    service, record = await open_request(request, body.model)
    embedder = service.embedder
    if embedder is None:
        message = f"{service.names[0]} does not support embeddings: its program gives no hidden states"
        raise invalid_value(message, "model", code="no_embeddings")
    if body.model in service.adapters:
        message = f"{body.model} is an adapter; embeddings are those of {service.names[0]}"
        raise invalid_value(message, "model", code="no_embeddings")
    texts = as_list(body.input, "input")
    if len(texts) > service.limits.inputs:
        raise invalid_value(f"{len(texts)} texts; the limit is {service.limits.inputs} per request", "input")
    if service.logs.with_prompts:
        record.prompt = body.input
    vectors: list[Vector] = []

    async def embed_all() -> None:
        for text in texts:  # one call each, so that a disconnect takes effect between two texts
            if record.seconds > service.limits.seconds:
                message = f"the texts took longer than {service.limits.seconds:g} seconds"
                raise ApiError(503, message, code="timeout")
            # One worker thread for all requests: those that wait occupy no thread of the pool.
            vector, tokens = await to_thread.run_sync(_embed, embedder, text, limiter=service.embedding)
            if body.dimensions not in (None, len(vector)):
                raise invalid_value(f"this model's vectors have {len(vector)} dimensions", "dimensions")
            record.prompt_tokens += tokens
            vectors.append(vector)

    try:
        await run_until_disconnect(request.receive, embed_all())
    except ClientDisconnected:
        record.is_abandoned = True
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    record.choices = len(vectors)
    as_base64 = body.encoding_format == "base64"
    encoded = [_base64(vector) if as_base64 else vector.tolist() for vector in vectors]
    data = [{"object": "embedding", "index": index, "embedding": each} for index, each in enumerate(encoded)]
    usage = {"prompt_tokens": record.prompt_tokens, "total_tokens": record.prompt_tokens}
    content: dict[str, Any] = {"object": "list", "data": data, "model": service.names[0], "usage": usage}
    return JSONResponse(content)


def _embed(embedder: Embedder, text: str | list[int]) -> tuple[Vector, int]:
    try:
        ids = embedder.encode(text) if isinstance(text, str) else text
        return embedder.embed(ids), len(ids)
    except InputError as error:
        raise invalid_value(str(error), "input") from error


def _base64(vector: Vector) -> str:
    """Little-endian floats, OpenAI's compact encoding."""
    return base64.b64encode(vector.astype(np.dtype("<f4")).tobytes()).decode("ascii")
