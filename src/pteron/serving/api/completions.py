"""POST /v1/chat/completions: the assistant's next message of a conversation. POST /v1/completions: the
continuation of a text, or of tokens."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from pteron.llm.engine import Request as EngineRequest
from pteron.serving.answer.generation import Generation
from pteron.serving.api.chunks import ChatWriter, CompletionWriter
from pteron.serving.api.schema import ChatBody, CompletionBody
from pteron.serving.http.json_body import JsonRoute
from pteron.serving.http.request_log import RequestRecord
from pteron.serving.http.server_state import LoadedModel
from pteron.serving.prompt.chat import prepare, prepare_chat
from pteron.serving.prompt.encoding import as_list, encode_prompts
from pteron.serving.prompt.sampling_params import check_choices, engine_requests, response_grammar

router = APIRouter(route_class=JsonRoute)
_TOKENS = 16  # OpenAI's default of `max_tokens` for completions


@router.post("/v1/chat/completions")
async def chat(request: Request, body: ChatBody) -> Response:
    generation = await prepare_chat(request, body)
    alternatives = (body.top_logprobs or 0) if body.logprobs else None
    writer = ChatWriter(generation, alternatives, body.stream_options)
    return await generation.respond(writer, stream=bool(body.stream))


@router.post("/v1/completions")
async def complete(request: Request, body: CompletionBody) -> Response:
    generation = await prepare_completion(request, body)
    writer = CompletionWriter(generation, body.logprobs, body.stream_options)
    return await generation.respond(writer, stream=bool(body.stream))


async def prepare_completion(request: Request, body: CompletionBody) -> Generation:
    """The answers to prompts, not yet begun."""
    requests = await prepare(request, body, _completion_requests)
    return Generation(request, requests, prompts=len(as_list(body.prompt, "prompt")))


def _completion_requests(
    model: LoadedModel, record: RequestRecord, body: CompletionBody
) -> list[EngineRequest]:
    """The engine requests of a completion: `n` for each prompt."""
    llm, limits = model.llm, model.server.limits
    if model.server.logs.with_prompts:
        record.prompt = body.prompt
    check_choices(body, len(as_list(body.prompt, "prompt")), limits)
    return engine_requests(
        model,
        record,
        body,
        encode_prompts(llm, body.prompt, limits),
        new_tokens=_TOKENS if body.max_tokens is None else body.max_tokens,
        top_logprobs=0 if body.logprobs is None else max(1, body.logprobs),
        grammar=response_grammar(body, llm, limits),
    )
