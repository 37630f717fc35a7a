"""create_app: a model -> an application that speaks OpenAI's protocol.

    app = create_app(LLM("folder"), name="my-model")

Any ASGI server runs it. What `pteron serve` adds is in server.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.middleware.cors import CORSMiddleware

import pteron
from pteron.errors import InputError
from pteron.llm import LLM
from pteron.llm.engine import Engine
from pteron.serving.embedder import Embedder
from pteron.serving.hidden import hidden_states
from pteron.serving.http import about, chat, completions, embeddings
from pteron.serving.http.errors import add_handlers
from pteron.serving.http.gate import Gate
from pteron.serving.http.keys import Keys
from pteron.serving.http.limits import Limits
from pteron.serving.http.logs import Logs
from pteron.serving.http.metrics import Metrics
from pteron.serving.http.page import mount
from pteron.serving.http.service import Service
from pteron.serving.http.watch import Watch
from pteron.serving.opening import served

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
    """An application that serves a model by its name and aliases.

    With `api_keys` every route asks for one but /health, the page (unless `open_page` is False: it holds no
    secrets, and asks its user for the key) and, with `open_metrics`, /metrics. `hosts` are the names that it
    answers to, by default any; `origins` the sites whose pages may use it (CORS), by default none.

    An engine stays its owner's; where an LLM is given, the application makes one and ends it with itself.
    """
    if not name:
        raise InputError("a model is served by a name, which is missing")
    if isinstance(model, LLM):
        model = served(model)
    engine = Engine(model) if isinstance(model, LLM) else model if isinstance(model, Engine) else None
    embedder = model if isinstance(model, Embedder) else hidden_states(engine.llm) if engine else None
    names = tuple(dict.fromkeys((name, *aliases)))
    service = Service(names, engine, embedder, limits or Limits(), Metrics(engine), logs or Logs())

    if engine is not None:
        engine.tell_stepping(lambda words: service.logs.write("engine", model=name, message=words))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.is_draining = True
        service.cancel()
        if engine is not None and engine is not model:
            await run_in_threadpool(engine.close)

    # Without FastAPI's own pages and schema: docs/serve.md names all routes that there are.
    app = FastAPI(title="Pteron", version=pteron.__version__, lifespan=lifespan, openapi_url=None)
    app.state.service = service
    add_handlers(app)
    for routes in (about, chat, completions, embeddings):
        app.include_router(routes.router)
    open_paths = ["/metrics"] if open_metrics else []
    if page:
        mount(app)
        open_paths += _PAGE if open_page else ()
    app.add_middleware(Gate, service=service, keys=Keys(api_keys), hosts=hosts, open_paths=open_paths)
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
            expose_headers=["X-Request-Id", "Retry-After"],
        )
    app.add_middleware(Watch, service=service)  # added last, so outermost
    return app
