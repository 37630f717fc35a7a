"""create_app: a model -> an ASGI application with OpenAI's API.

    app = create_app(LLM("folder"), name="my-model")

Any ASGI server runs it. server.py has the one of `pteron serve`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.concurrency import run_in_threadpool
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

import pteron
from pteron.errors import InputError
from pteron.llm import LLM
from pteron.llm.engine import Engine
from pteron.serving.encoder import Embedder
from pteron.serving.hidden_states import hidden_states, llm_or_embedder
from pteron.serving.http import completions, embeddings, messages, ollama, responses, tokens
from pteron.serving.http.api_keys import ApiKeys
from pteron.serving.http.errors import add_error_handlers
from pteron.serving.http.limits import Limits
from pteron.serving.http.metrics import Metrics
from pteron.serving.http.middleware import AccessMiddleware, RequestLogMiddleware
from pteron.serving.http.page import mount
from pteron.serving.http.request_log import Logs
from pteron.serving.http.service import Service, service_of

_PAGE = ("/", "/page/")


def create_app(
    model: Engine | LLM | Embedder,
    *,
    name: str,
    aliases: Sequence[str] = (),
    api_keys: Sequence[str] = (),
    limits: Limits | None = None,
    logs: Logs | None = None,
    page: bool = True,
    open_page: bool = True,
    open_metrics: bool = False,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
) -> FastAPI:
    """An application that serves a model by its name and aliases, and its LoRA adapters by theirs.

    With `api_keys` every route needs a key except /health, the chat page (unless `open_page` is False; the
    page holds no secrets and prompts its user for the key) and, with `open_metrics`, /metrics. `hosts` are
    the host names that are accepted, by default any. `origins` are the web sites whose pages may use the API
    (CORS).

    The caller closes an engine that it passes. For an LLM the application creates an engine and closes it.
    """
    if not name:
        raise InputError("the name of the model is missing")
    if isinstance(model, LLM):
        model = llm_or_embedder(model)
    engine = Engine(model) if isinstance(model, LLM) else model if isinstance(model, Engine) else None
    embedder = model if isinstance(model, Embedder) else hidden_states(engine.llm) if engine else None
    names = tuple(dict.fromkeys((name, *aliases)))
    if engine is not None and (twice := set(names) & set(engine.llm.model.adapters)):
        raise InputError(f"{sorted(twice)[0]!r} is the name of the model and of an adapter")
    service = Service(names, engine, embedder, limits or Limits(), Metrics(engine), logs or Logs())

    if engine is not None:
        engine.add_stepping_listener(
            lambda message: service.logs.write("engine", model=name, message=message)
        )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.is_draining = True
        service.cancel()
        if engine is not None and engine is not model:
            await run_in_threadpool(engine.close)

    # Without FastAPI's schema and its pages: docs/serve.md lists the routes.
    app = FastAPI(title="Pteron", version=pteron.__version__, lifespan=lifespan, openapi_url=None)
    app.state.service = service
    add_error_handlers(app)
    for api in (completions, responses, messages, ollama, embeddings, tokens):
        app.include_router(api.router)
    app.include_router(status_router)
    open_paths = ["/metrics"] if open_metrics else []
    if page:
        mount(app)
        open_paths += _PAGE if open_page else ()
    app.add_middleware(
        AccessMiddleware, service=service, keys=ApiKeys(api_keys), hosts=hosts, open_paths=open_paths
    )
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-Api-Key"],
            expose_headers=["X-Request-Id", "Retry-After"],
        )
    app.add_middleware(RequestLogMiddleware, service=service)  # added last, so it is the outermost
    return app


status_router = APIRouter()


@status_router.get("/v1/models")
async def models(request: Request) -> dict[str, Any]:
    service = service_of(request)
    return {"object": "list", "data": [service.card(name) for name in (*service.names, *service.adapters)]}


@status_router.get("/v1/models/{name:path}")
async def model(request: Request, name: str) -> dict[str, Any]:
    service = service_of(request)
    service.check_name(name)
    return service.card(name)


@status_router.api_route("/health", methods=["GET", "HEAD"])
async def health(request: Request) -> JSONResponse:
    """200 while requests are accepted; 503 while the server shuts down, or after it has lost its device."""
    service = service_of(request)
    status = "draining" if service.is_draining else "ok" if service.is_healthy else "lost"
    content: dict[str, Any] = {"status": status}
    if service.engine is not None:
        load = service.engine.load
        content |= {"running": load.running, "waiting": load.waiting}
    return JSONResponse(content, 200 if status == "ok" else 503)


@status_router.get("/metrics")
async def metrics(request: Request) -> Response:
    return Response(service_of(request).metrics.text(), media_type=CONTENT_TYPE_LATEST)
