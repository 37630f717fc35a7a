"""Replica: one model in an engine, behind the application that `pteron serve` runs.

In: the ASGI scope and the body of a request. Out: batches of the ASGI messages of the answer.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from starlette.types import Message as AsgiMessage

from pteron.errors import DeviceError
from pteron.llm import LLM
from pteron.llm.engine import Engine
from pteron.serving.cluster.options import Options
from pteron.serving.hidden_states import open_served
from pteron.serving.http import Logs, create_app

_DRAIN_SECONDS = 20.0  # for running answers when the replica ends


class Replica:
    """`adapter` is the GPU that is reserved for the replica, if any."""

    def __init__(self, options: Options, adapter: str | None = None) -> None:
        self._engine: Engine | None = None
        self._model = open_served(
            options.model,
            options.tokenizer,
            data=options.data,
            device=options.device or adapter,
            digits=options.digits,
            products=options.products,
            adapters=options.adapters,
            sequences=options.sequences,
            cache_bytes=options.cache_bytes,
            context=options.context,
            cache=options.cache,
            rings=options.rings,
            speculate=options.speculate,
        )
        if isinstance(self._model, LLM):
            self._engine = Engine(self._model, running=options.sequences, waiting=options.queue)
        logs = Logs(None if options.is_quiet else sys.stderr, with_prompts=options.logs_prompts)
        self._app = create_app(self._engine or self._model, logs=logs, **options.app_settings)
        self._app.state.service.created = options.created

    def check_health(self) -> None:
        """Raise if the model cannot answer any more: Ray then replaces the replica."""
        if self._engine is not None and not self._engine.is_alive:
            raise DeviceError("the engine has ended")
        self._model.program.device.check_open()

    async def answer(self, scope: Mapping[str, Any], body: bytes) -> AsyncGenerator[list[AsgiMessage], None]:
        """The application's messages. Closing the generator early tells the application that the client has
        disconnected."""
        sent: asyncio.Queue[AsgiMessage | None] = asyncio.Queue()  # None: the application has returned
        has_left = asyncio.Event()
        unread = [body]

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
        if self._engine is not None:
            self._engine.drain(_DRAIN_SECONDS)
            self._engine.close()
        self._model.close()
