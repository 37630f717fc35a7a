"""POST /tokenize, /detokenize, /apply_template: texts, conversations and token ids, without an answer.

The fields are those of vLLM and of llama-server, whose answers have other names for the same.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from pteron.serving.http.chat import check_images, image_limiter
from pteron.serving.http.errors import invalid_value
from pteron.serving.http.json_body import JsonRoute
from pteron.serving.http.prompts import RenderedChat, encode_prompt, encode_rendered, render_chat
from pteron.serving.http.schema import Body, Many, Message, Tools
from pteron.serving.http.schema import Tool as ChatTool
from pteron.serving.http.service import Service, open_request
from pteron.serving.http.sse import run_in_thread

router = APIRouter(route_class=JsonRoute)


class TemplateBody(Body):
    """POST /apply_template"""

    model: str | None = None
    messages: Annotated[list[Message], Field(min_length=1), Many]
    tools: Annotated[list[ChatTool], Tools] | None = None
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] | None = None


class TokenizeBody(Body):
    """POST /tokenize: `prompt` (vLLM) or `content` (llama-server) is a text, `messages` a conversation."""

    model: str | None = None
    prompt: str | None = None
    content: str | None = None
    messages: Annotated[list[Message], Many] | None = None
    tools: Annotated[list[ChatTool], Tools] | None = None
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] | None = None
    add_special_tokens: bool = True
    add_special: bool | None = None
    with_pieces: bool = False
    return_token_strs: bool = False


class DetokenizeBody(Body):
    """POST /detokenize"""

    model: str | None = None
    tokens: list[int]


@router.post("/tokenize")
async def tokenize(request: Request, body: TokenizeBody) -> dict[str, Any]:
    service, _ = await open_request(request, body.model)
    given = [each for each in (body.prompt, body.content, body.messages) if each is not None]
    if len(given) != 1:
        raise invalid_value("give one of prompt, content and messages", "prompt")
    limiter = image_limiter(body.messages or (), service)
    ids = await run_in_thread(request.receive, _tokenize, service, body, given[0], limiter=limiter)
    token_text = service.llm.tokenizer.token_text
    tokens: list[Any] = list(ids)
    if body.with_pieces:
        tokens = [{"id": id, "piece": token_text(id)} for id in ids]
    found = {"tokens": tokens, "count": len(ids), "max_model_len": service.llm.model.context}
    return found | ({"token_strs": [token_text(id) for id in ids]} if body.return_token_strs else {})


@router.post("/detokenize")
async def detokenize(request: Request, body: DetokenizeBody) -> dict[str, str]:
    service, _ = await open_request(request, body.model)
    llm, most = service.llm, service.limits.prompt_tokens
    if len(body.tokens) > most:
        raise invalid_value(f"{len(body.tokens)} tokens; the limit is {most}", "tokens")
    if body.tokens and not 0 <= min(body.tokens) <= max(body.tokens) < llm.model.vocabulary:
        raise invalid_value(f"a token id is from 0 to {llm.model.vocabulary - 1}", "tokens")
    text = await run_in_threadpool(llm.tokenizer.decode, body.tokens)
    return {"prompt": text, "content": text}


@router.post("/apply_template")
@router.post("/apply-template")
async def apply_template(request: Request, body: TemplateBody) -> dict[str, str]:
    service, _ = await open_request(request, body.model)
    limiter = image_limiter(body.messages, service)
    found = await run_in_thread(request.receive, _render, service, body, body.messages, limiter=limiter)
    return {"prompt": service.llm.shown(found.text)}


def _tokenize(service: Service, body: TokenizeBody, given: str | list[Message]) -> tuple[int, ...]:
    if isinstance(given, str):
        adds = body.add_special_tokens if body.add_special is None else body.add_special
        if not adds and not given:
            return ()
        return encode_prompt(service.llm, given, "prompt", service.limits, bos=adds)
    ids = encode_rendered(service.llm, _render(service, body, given), service.limits)
    prefill = service.llm.image_prefill
    return tuple(prefill.token if prefill and id < 0 else id for id in ids)  # rows of images


def _render(service: Service, body: TokenizeBody | TemplateBody, messages: list[Message]) -> RenderedChat:
    check_images(messages, service)
    variables = {**(body.chat_template_kwargs or {}), "add_generation_prompt": body.add_generation_prompt}
    return render_chat(service.llm, messages, body.tools or [], variables, service.limits)
