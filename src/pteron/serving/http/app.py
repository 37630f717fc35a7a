"""create_app: a model -> an ASGI application with OpenAI's API.

    app = create_app(LLM("folder"), name="my-model")

Any ASGI server runs it. server.py has the one of `pteron serve`.
"""

from __future__ import annotations

import asyncio
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
from pteron.serving.http import audio, completions, embeddings, messages, ollama, responses, scores, tokens
from pteron.serving.http.api_keys import ApiKeys
from pteron.serving.http.errors import add_error_handlers
from pteron.serving.http.limits import Limits
from pteron.serving.http.metrics import Metrics
from pteron.serving.http.middleware import AccessMiddleware, RequestLogMiddleware
from pteron.serving.http.models import Models, ModelSource
from pteron.serving.http.page import mount
from pteron.serving.http.request_log import Logs
from pteron.serving.http.service import Service, service_of
from pteron.serving.http.telemetry import Traces
from pteron.serving.speech import Transcriber

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
    engine: Engine | None = None
    if isinstance(model, (Engine, LLM, Embedder, Transcriber)):
        if not name:
            raise InputError("the name of the model is missing")
        engine = Engine(model) if isinstance(model, LLM) else model if isinstance(model, Engine) else None
        names = tuple(dict.fromkeys((name, *aliases)))
        served = engine if isinstance(model, LLM) and engine else model
        service = _service_of_model(served, names, limits or Limits(), Metrics(engine), logs or Logs())  # type: ignore[arg-type]  # no LLM
    else:

        def engines() -> dict[str, Engine]:
            loaded = service.models.loaded if service.models else []
            return {one.names[0]: one.engine for one in loaded if one.engine is not None}

        service = Service((), None, None, limits or Limits(), Metrics(None, engines), logs or Logs())

        def serve(loaded: Engine | Embedder | Transcriber, names: tuple[str, ...]) -> Service:
            one = _service_of_model(loaded, names, service.limits, service.metrics, service.logs)
            one.answers, one.conversations = service.answers, service.conversations
            one.imaging = service.imaging
            return one

        service.models = Models(model, serve, keep_alive)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        models = service.models
        unloading = asyncio.ensure_future(models.unload_idle()) if models else None
        yield
        service.is_draining = True
        service.cancel()
        if models and unloading:
            unloading.cancel()
            await models.close()
        if engine is not None and engine is not model:
            await run_in_threadpool(engine.close)

    # Without FastAPI's schema and its pages: docs/serve.md lists the routes.
    app = FastAPI(title="Pteron", version=pteron.__version__, lifespan=lifespan, openapi_url=None)
    service.traces = traces
    app.state.service = service
    add_error_handlers(app)
    for api in (audio, completions, responses, messages, ollama, embeddings, scores, tokens):
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
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "X-Api-Key"],
            expose_headers=["X-Request-Id", "Retry-After"],
        )
    app.add_middleware(RequestLogMiddleware, service=service)  # added last, so it is the outermost
    return app


def _service_of_model(
    model: Engine | Embedder | Transcriber,
    names: tuple[str, ...],
    limits: Limits,
    metrics: Metrics,
    logs: Logs,
) -> Service:
    """The service of a model that is loaded."""
    engine = model if isinstance(model, Engine) else None
    embedder = model if isinstance(model, Embedder) else hidden_states(engine.llm) if engine else None
    if engine is not None:
        if twice := set(names) & set(engine.llm.model.adapters):
            raise InputError(f"{sorted(twice)[0]!r} is the name of the model and of an adapter")
        engine.add_stepping_listener(lambda message: logs.write("engine", model=names[0], message=message))
    speech = model if isinstance(model, Transcriber) else None
    return Service(names, engine, embedder, limits, metrics, logs, speech=speech)


status_router = APIRouter()


@status_router.get("/v1/models")
async def models(request: Request) -> dict[str, Any]:
    service = service_of(request)
    return {"object": "list", "data": [service.card(name) for name in service.all_names]}


@status_router.get("/v1/models/{name:path}")
async def model(request: Request, name: str) -> dict[str, Any]:
    service = service_of(request)
    service.check_name(name)
    return service.card(name)


@status_router.api_route("/health", methods=["GET", "HEAD"])
async def health(request: Request) -> JSONResponse:
    """Whether the process works: 200 also while it shuts down; 503 after it has lost its device."""
    service = service_of(request)
    return _status(service, "ok" if service.is_healthy else "lost", "ok")


@status_router.api_route("/ready", methods=["GET", "HEAD"])
async def ready(request: Request) -> JSONResponse:
    """Whether requests are accepted: 503 also while the server shuts down, or while the queue is full."""
    service = service_of(request)
    status = "draining" if service.is_draining else "full" if service.is_full else "ready"
    return _status(service, status if service.is_healthy else "lost", "ready")


def _status(service: Service, status: str, good: str) -> JSONResponse:
    content: dict[str, Any] = {"status": status}
    services = [service] if service.models is None else service.models.loaded
    loads = [one.engine.load for one in services if one.engine is not None]
    if loads:
        content["running"] = sum(load.running for load in loads)
        content["waiting"] = sum(load.waiting for load in loads)
    return JSONResponse(content, 200 if status == good else 503)


@status_router.get("/metrics")
async def metrics(request: Request) -> Response:
    return Response(service_of(request).metrics.text(), media_type=CONTENT_TYPE_LATEST)
