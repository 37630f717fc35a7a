"""POST /v1/embeddings: texts as vectors, where the model is an encoder or gives hidden states."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from anyio import to_thread
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from pteron.errors import InputError
from pteron.serving.embedder import Embedder, Vector
from pteron.serving.http.errors import ApiError
from pteron.serving.http.prompts import several
from pteron.serving.http.responding import CLIENT_GONE
from pteron.serving.http.schema import EmbeddingBody
from pteron.serving.http.service import record_of, service_of
from pteron.serving.http.sse import Gone, until_gone

router = APIRouter()


@router.post("/v1/embeddings")
async def embed(request: Request, body: EmbeddingBody) -> Response:
    service, record = service_of(request), record_of(request)
    service.check_name(body.model)
    embedder = service.embedder
    if embedder is None:
        message = f"{service.names[0]} makes no embeddings: its program gives no hidden states"
        raise ApiError(400, message, param="model", code="no_embeddings")
    texts = several(body.input, "input")
    if len(texts) > service.limits.inputs:
        message = f"{len(texts)} texts; this server takes {service.limits.inputs} at most in one request"
        raise ApiError(400, message, param="input", code="invalid_value")
    record.model = service.names[0]
    if service.logs.with_prompts:
        record.prompt = body.input
    vectors: list[Vector] = []

    async def work() -> None:
        for text in texts:  # one after the other, so that a client that leaves is heeded between two
            if record.seconds > service.limits.seconds:
                message = f"the texts took longer than {service.limits.seconds:g} seconds"
                raise ApiError(503, message, code="timeout")
            # One thread for all who ask: those that wait for their turn take none from anybody.
            vector, tokens = await to_thread.run_sync(_embedded, embedder, text, limiter=service.embedding)
            if body.dimensions not in (None, len(vector)):
                message = f"this model's vectors have {len(vector)} dimensions, and no others"
                raise ApiError(400, message, param="dimensions", code="invalid_value")
            record.prompt_tokens += tokens
            vectors.append(vector)

    try:
        await until_gone(request.receive, work())
    except Gone:
        record.is_abandoned = True
        return Response(status_code=CLIENT_GONE)
    record.choices = len(vectors)
    is_text = body.encoding_format == "base64"
    data = [
        {"object": "embedding", "index": index, "embedding": _text(vector) if is_text else vector.tolist()}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": record.prompt_tokens, "total_tokens": record.prompt_tokens}
    content: dict[str, Any] = {"object": "list", "data": data, "model": service.names[0], "usage": usage}
    return JSONResponse(content)


def _embedded(embedder: Embedder, text: str | list[int]) -> tuple[Vector, int]:
    try:
        ids = embedder.encode(text) if isinstance(text, str) else text
        return embedder.embed(ids), len(ids)
    except InputError as error:
        raise ApiError(400, str(error), param="input", code="invalid_value") from error


def _text(vector: Vector) -> str:
    """Little-endian floats, as clients ask for where they want them quickly."""
    return base64.b64encode(vector.astype(np.dtype("<f4")).tobytes()).decode("ascii")
