"""POST /v1/rerank, /score: how relevant texts are to a query, by an encoder.

A cross-encoder reads the query and a text together. Other encoders make vectors, and the score is the cosine
of the angle between two of them. The fields are those of Cohere, Jina and vLLM.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Request
from pydantic import Field

from pteron.embeddings.encoder import Encoder, Vector
from pteron.serving.answer.generation import new_id, now
from pteron.serving.api.embeddings import check_count, check_text, embed_text, embedder_of, run_each
from pteron.serving.api.schema import Body
from pteron.serving.http.errors import invalid_value
from pteron.serving.http.json_body import JsonRoute
from pteron.serving.http.request_log import RequestRecord
from pteron.serving.http.server_state import LoadedModel, open_request

router = APIRouter(route_class=JsonRoute)
Texts = Annotated[list[str], Field(min_length=1)]


class Document(Body):
    """A text of /v1/rerank as an object."""

    text: str


class RerankBody(Body):
    """POST /v1/rerank"""

    model: str | None = None
    query: str
    documents: Annotated[list[str | Document], Field(min_length=1)]
    top_n: Annotated[int, Field(ge=0)] | None = None
    return_documents: bool | None = None


class ScoreBody(Body):
    """POST /score: one text with each of others, or pairs."""

    model: str | None = None
    text_1: str | Texts
    text_2: str | Texts


@router.post("/rerank")
@router.post("/v1/rerank")
@router.post("/v2/rerank")
async def rerank(request: Request, body: RerankBody) -> dict[str, Any]:
    """The documents, the most relevant first."""
    model, record = await open_request(request, body.model)
    texts = [text.text if isinstance(text, Document) else text for text in body.documents]
    scores = await _scores(request, model, record, body.model, [body.query], texts, "documents")
    order = sorted(range(len(texts)), key=lambda index: -scores[index])[: body.top_n or None]
    results: list[dict[str, Any]] = [{"index": index, "relevance_score": scores[index]} for index in order]
    if body.return_documents is not False:
        for result in results:
            result["document"] = {"text": texts[result["index"]]}
    id, usage = new_id("rerank-"), _usage(record)
    return {"id": id, "model": model.names[0], "results": results, "usage": usage}


@router.post("/score")
@router.post("/v1/score")
async def score(request: Request, body: ScoreBody) -> dict[str, Any]:
    """The scores of pairs, in their order."""
    model, record = await open_request(request, body.model)
    first, second = ([text] if isinstance(text, str) else text for text in (body.text_1, body.text_2))
    if len(first) not in (1, len(second)):
        message = f"text_1 must be one text or as many as text_2, {len(second)}, not {len(first)}"
        raise invalid_value(message, "text_1")
    scores = await _scores(request, model, record, body.model, first, second, "text_2")
    data = [{"index": index, "object": "score", "score": each} for index, each in enumerate(scores)]
    head = {"id": new_id("score-"), "object": "list", "created": now(), "model": model.names[0]}
    return {**head, "data": data, "usage": _usage(record)}


async def _scores(
    request: Request,
    model: LoadedModel,
    record: RequestRecord,
    name: str | None,
    queries: Sequence[str],
    texts: Sequence[str],
    param: str,
) -> list[float]:
    """The score of each text, with its own query or with the only one."""
    embedder = embedder_of(model, name)
    check_count(len(texts), param, model)
    if model.server.logs.with_prompts:
        record.prompt = [*queries, *texts]
    if embedder.scores_pairs:
        assert isinstance(embedder, Encoder)
        queries = queries if len(queries) > 1 else [queries[0]] * len(texts)
        pairs = list(zip(queries, texts, strict=True))
        encoder = embedder

        def score_pair(pair: tuple[str, str]) -> tuple[float, int]:
            for text in pair:
                check_text(encoder, text)
            return encoder.score(*pair)

        return await run_each(request, model, record, score_pair, pairs, param)

    def embed(text: str) -> tuple[Vector, int]:
        return embed_text(embedder, text)

    vectors = np.array(await run_each(request, model, record, embed, [*queries, *texts], param), np.float64)
    record.choices = len(texts)
    scores: list[float] = (vectors[: len(queries)] * vectors[len(queries) :]).sum(1).tolist()
    return scores


def _usage(record: RequestRecord) -> dict[str, int]:
    return {"prompt_tokens": record.prompt_tokens, "total_tokens": record.prompt_tokens}
