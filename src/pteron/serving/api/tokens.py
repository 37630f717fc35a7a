"""POST /tokenize, /detokenize, /apply_template: texts, conversations and token ids, without an answer.

The fields are those of vLLM and of llama-server, whose answers have other names for the same.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from pteron.serving.api.schema import Body, ChatBody, Message, TemplateBody, TokenizeBody
from pteron.serving.http.errors import invalid_value
from pteron.serving.http.json_body import JsonRoute
from pteron.serving.http.request_log import RequestRecord
from pteron.serving.http.server_state import MODEL, LoadedModel, open_request
from pteron.serving.prompt.chat import prepare, render
from pteron.serving.prompt.encoding import RenderedChat, encode_prompt, encode_rendered

router = APIRouter(route_class=JsonRoute)


class DetokenizeBody(Body):
    """POST /detokenize"""

    model: str | None = None
    tokens: list[int]


@router.post("/tokenize")
async def tokenize(request: Request, body: TokenizeBody) -> dict[str, Any]:
    ids = await prepare(request, body, _tokenize)
    model: LoadedModel = request.scope[MODEL]
    token_text = model.llm.tokenizer.token_text
    tokens: list[Any] = list(ids)
    if body.with_pieces:
        tokens = [{"id": id, "piece": token_text(id)} for id in ids]
    found = {"tokens": tokens, "count": len(ids), "max_model_len": model.llm.model.context}
    return found | ({"token_strs": [token_text(id) for id in ids]} if body.return_token_strs else {})


@router.post("/detokenize")
async def detokenize(request: Request, body: DetokenizeBody) -> dict[str, str]:
    model, _ = await open_request(request, body.model)
    llm, most = model.llm, model.server.limits.prompt_tokens
    if len(body.tokens) > most:
        raise invalid_value(f"{len(body.tokens)} tokens; the limit is {most}", "tokens")
    if body.tokens and not 0 <= min(body.tokens) <= max(body.tokens) < llm.model.vocabulary:
        raise invalid_value(f"a token id is from 0 to {llm.model.vocabulary - 1}", "tokens")
    text = await run_in_threadpool(llm.tokenizer.decode, body.tokens)
    return {"prompt": text, "content": text}


@router.post("/apply_template")
@router.post("/apply-template")
async def apply_template(request: Request, body: TemplateBody) -> dict[str, str]:
    return {"prompt": await prepare(request, body, _apply_template)}


def _apply_template(model: LoadedModel, record: RequestRecord, body: TemplateBody) -> str:
    return model.llm.shown(_render(model, body, body.messages).text)


def _tokenize(model: LoadedModel, record: RequestRecord, body: TokenizeBody) -> tuple[int, ...]:
    given = [each for each in (body.prompt, body.content, body.messages) if each is not None]
    if len(given) != 1:
        raise invalid_value("give one of prompt, content and messages", "prompt")
    if isinstance(given[0], str):
        adds = body.add_special_tokens if body.add_special is None else body.add_special
        if not adds and not given[0]:
            return ()
        return encode_prompt(model.llm, given[0], "prompt", model.server.limits, bos=adds)
    ids = encode_rendered(model.llm, _render(model, body, given[0]), model.server.limits)
    prefill = model.llm.image_prefill
    return tuple(prefill.token if prefill and id < 0 else id for id in ids)  # rows of images


def _render(model: LoadedModel, body: TokenizeBody | TemplateBody, messages: list[Message]) -> RenderedChat:
    chat = ChatBody.model_construct(
        messages=messages,
        add_generation_prompt=body.add_generation_prompt,
        chat_template_kwargs=body.chat_template_kwargs,
    )
    return render(model, chat, body.tools or [])
