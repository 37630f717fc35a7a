"""create_app: a model -> an ASGI application with OpenAI's API.

    app = create_app(LLM("folder"), name="my-model")

Any ASGI server runs it. server.py has the one of `pteron serve`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

import pteron
from pteron.embeddings.encoder import Embedder
from pteron.embeddings.hidden_states import llm_or_embedder
from pteron.errors import InputError
from pteron.llm import LLM
from pteron.llm.engine import Engine
from pteron.serving.api import audio, completions, embeddings, messages, ollama, responses, scores, tokens
from pteron.serving.http.api_keys import ApiKeys
from pteron.serving.http.errors import add_error_handlers
from pteron.serving.http.limits import Limits
from pteron.serving.http.middleware import AccessMiddleware, RequestLogMiddleware
from pteron.serving.http.models import ModelSource
from pteron.serving.http.request_log import Logs
from pteron.serving.http.server_state import ServerState, server_of
from pteron.serving.http.telemetry import Traces
from pteron.serving.page import mount
from pteron.speech import Transcriber

_PAGE = ("/", "/page/")


def create_app(
    model: Engine | LLM | Embedder | Transcriber | Sequence[ModelSource],
    *,
    name: str = "",
    keep_alive: float | None = None,
    aliases: Sequence[str] = (),
    api_keys: Sequence[str] = (),
    limits: Limits | None = None,
    logs: Logs | None = None,
    traces: Traces | None = None,
    page: bool = True,
    open_page: bool = True,
    open_metrics: bool = False,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
) -> FastAPI:
    """An application that serves a model by its name and aliases, and its LoRA adapters by theirs; or several
    models, each loaded at its first request and unloaded after `keep_alive` seconds without one.

    With `api_keys` every route needs a key except /health, /ready, the chat page (unless `open_page` is
    False; the page holds no secrets and prompts its user for the key) and, with `open_metrics`, /metrics.
    `hosts` are the host names that are accepted, by default any. `origins` are the web sites whose pages may
    use the API (CORS). `traces` makes a span for each request (`open_traces`).

    The caller closes an engine that it passes. For an LLM the application creates an engine and closes it.
    """
    if isinstance(model, LLM):
        model = llm_or_embedder(model)
    is_loaded = not isinstance(model, Sequence)
    sources = model if isinstance(model, Sequence) else [_source_of(model, name, aliases)]
    server = ServerState(
        sources,
        limits or Limits(),
        logs or Logs(),
        traces,
        keep_alive=None if is_loaded else keep_alive,
        by_model=not is_loaded,
    )
    if is_loaded:
        server.models.load_all()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        unloading = asyncio.ensure_future(server.models.unload_idle())
        yield
        server.is_draining = True
        server.cancel()
        unloading.cancel()
        await server.models.close()

    # Without FastAPI's schema and its pages: docs/serve.md lists the routes.
    app = FastAPI(title="Pteron", version=pteron.__version__, lifespan=lifespan, openapi_url=None)
    app.state.server = server
    add_error_handlers(app)
    for api in (audio, completions, responses, messages, ollama, embeddings, scores, tokens):
        app.include_router(api.router)
    app.include_router(status_router)
    open_paths = ["/metrics"] if open_metrics else []
    if page:
        mount(app)
        open_paths += _PAGE if open_page else ()
    app.add_middleware(
        AccessMiddleware, server=server, keys=ApiKeys(api_keys), hosts=hosts, open_paths=open_paths
    )
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "X-Api-Key"],
            expose_headers=["X-Request-Id", "Retry-After"],
        )
    app.add_middleware(RequestLogMiddleware, server=server)  # added last, so it is the outermost
    return app


def _source_of(
    model: Engine | LLM | Embedder | Transcriber, name: str, aliases: Sequence[str]
) -> ModelSource:
    """The source of a model that the caller has loaded."""
    if not name:
        raise InputError("the name of the model is missing")
    opened = Engine(model) if isinstance(model, LLM) else nullcontext(model)
    llm = model if isinstance(model, LLM) else model.llm if isinstance(model, Engine) else None
    names = tuple(dict.fromkeys((name, *aliases)))
    return ModelSource(names, lambda: opened, llm.model.adapters if llm else ())


status_router = APIRouter()


@status_router.get("/v1/models")
async def models(request: Request) -> dict[str, Any]:
    server = server_of(request)
    return {"object": "list", "data": [server.card(name) for name in server.models.names]}


@status_router.get("/v1/models/{name:path}")
async def model(request: Request, name: str) -> dict[str, Any]:
    server = server_of(request)
    server.check_name(name)
    return server.card(name)


@status_router.api_route("/health", methods=["GET", "HEAD"])
async def health(request: Request) -> JSONResponse:
    """Whether the process works: 200 also while it shuts down; 503 after it has lost its device."""
    server = server_of(request)
    return _status(server, "ok" if server.is_healthy else "lost", "ok")


@status_router.api_route("/ready", methods=["GET", "HEAD"])
async def ready(request: Request) -> JSONResponse:
    """Whether requests are accepted: 503 also while the server shuts down, or while the queue is full."""
    server = server_of(request)
    status = "draining" if server.is_draining else "full" if server.is_full else "ready"
    return _status(server, status if server.is_healthy else "lost", "ready")


def _status(server: ServerState, status: str, good: str) -> JSONResponse:
    content: dict[str, Any] = {"status": status}
    loads = [model.engine.load for model in server.models.loaded if model.engine is not None]
    if loads:
        content["running"] = sum(load.running for load in loads)
        content["waiting"] = sum(load.waiting for load in loads)
    return JSONResponse(content, 200 if status == good else 503)


@status_router.get("/metrics")
async def metrics(request: Request) -> Response:
    return Response(server_of(request).metrics.text(), media_type=CONTENT_TYPE_LATEST)
