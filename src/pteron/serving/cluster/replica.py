"""Replica: one model in an engine, behind the application that `pteron serve` runs.

In: the ASGI scope and the body of a request. Out: batches of the ASGI messages of the answer.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any

from starlette.types import Message as AsgiMessage

from pteron.embeddings.encoder import Embedder
from pteron.embeddings.hidden_states import in_engine, open_served
from pteron.errors import DeviceError
from pteron.llm.engine import Engine
from pteron.serving.cluster.options import Options
from pteron.serving.http import Logs, create_app
from pteron.serving.http.models import ModelSource
from pteron.serving.http.server_state import ServerState
from pteron.speech import Transcriber

_DRAIN_SECONDS = 20.0  # for running answers when the replica ends


class Replica:
    """`adapter` is the GPU that is reserved for the replica, if any."""

    def __init__(self, options: Options, adapter: str | None = None) -> None:
        self._opened = ExitStack()
        self._unloading: asyncio.Task[None] | None = None  # unloads models without requests
        named = {options.name: options.model, **options.more_models}
        served: Engine | Embedder | Transcriber | list[ModelSource]
        if options.more_models:
            served = [
                ModelSource((name,), partial(_open_model, options, model, adapter))
                for name, model in named.items()
            ]
        else:
            served = self._opened.enter_context(_open_model(options, options.model, adapter))
        logs = Logs(None if options.is_quiet else sys.stderr, with_prompts=options.logs_prompts)
        self._app = create_app(served, logs=logs, keep_alive=options.keep_alive, **options.app_settings)
        self._server: ServerState = self._app.state.server
        self._server.created = options.created

    def check_health(self) -> None:
        """Raise if the model cannot answer any more: Ray then replaces the replica."""
        if not self._server.is_healthy:
            raise DeviceError("the model has lost its device, or its engine has ended")

    async def answer(self, scope: Mapping[str, Any], body: bytes) -> AsyncGenerator[list[AsgiMessage], None]:
        """The application's messages. Closing the generator early tells the application that the client has
        disconnected."""
        sent: asyncio.Queue[AsgiMessage | None] = asyncio.Queue()  # None: the application has returned
        has_left = asyncio.Event()
        unread = [body]
        if self._unloading is None:
            self._unloading = asyncio.create_task(self._server.models.unload_idle())

        async def receive() -> AsgiMessage:
            if unread:
                return {"type": "http.request", "body": unread.pop(), "more_body": False}
            await has_left.wait()
            return {"type": "http.disconnect"}

        async def send(message: AsgiMessage) -> None:
            sent.put_nowait(message)

        running = asyncio.create_task(self._app(dict(scope), receive, send))
        running.add_done_callback(lambda _: sent.put_nowait(None))
        try:
            while (message := await sent.get()) is not None:
                batch = [message]
                while not sent.empty() and (more := sent.get_nowait()) is not None:
                    batch.append(more)
                yield batch
                if running.done() and sent.empty():
                    break
            await running
        finally:
            has_left.set()
            if not running.done():
                await asyncio.wait([running], timeout=_DRAIN_SECONDS)

    def close(self) -> None:
        """Let running answers finish, and free the GPU."""
        for model in self._server.models.loaded:
            if model.engine is not None:
                model.engine.drain(_DRAIN_SECONDS)
        self._server.models.close_now()
        self._opened.close()


def _open_model(
    options: Options, model: str, adapter: str | None
) -> AbstractContextManager[Engine | Embedder | Transcriber]:
    """A language model in an engine, or an embedder."""
    opened = open_served(model, device=options.device or adapter, **options.model_settings)
    return in_engine(opened, running=options.sequences, waiting=options.queue)
