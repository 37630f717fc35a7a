"""A replica: one model in its engine, behind the application that `pteron serve` runs, called by messages.

In: a request's ASGI scope and its body. Out: the messages of the answer, as many together as there are.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from pteron.errors import DeviceError
from pteron.llm import LLM
from pteron.llm.engine import Engine
from pteron.serving.cluster.options import Options
from pteron.serving.cluster.proxy import Message
from pteron.serving.http import Logs, create_app
from pteron.serving.opening import opened

_DRAIN_SECONDS = 20.0  # for answers that are under way when a replica is to end


class Replica:
    """`adapter` is the GPU that was set aside for it, where one was."""

    def __init__(self, options: Options, adapter: str | None = None) -> None:
        self._engine: Engine | None = None
        self._model = opened(
            options.model,
            options.tokenizer,
            data=options.data,
            device=options.device or adapter,
            digits=options.digits,
            sequences=options.sequences,
            cache_bytes=options.cache_bytes,
        )
        if isinstance(self._model, LLM):
            self._engine = Engine(self._model, running=options.sequences, waiting=options.queue)
        self._app = create_app(
            self._engine or self._model,
            name=options.name,
            aliases=options.aliases,
            api_keys=options.api_keys,
            limits=options.limits,
            logs=Logs(None if options.is_quiet else sys.stderr, with_prompts=options.logs_prompts),
            page=options.page,
            open_page=options.open_page,
            open_metrics=options.open_metrics,
            hosts=options.hosts,
            origins=options.origins,
        )
        self._app.state.service.created = options.created

    def check_health(self) -> None:
        """Raise where it can answer nothing any more: then it is replaced."""
        if self._engine is not None and not self._engine.is_alive:
            raise DeviceError("the engine has ended")
        self._model.program.device.check_open()

    async def answer(self, scope: Mapping[str, Any], body: bytes) -> AsyncGenerator[list[Message], None]:
        """What the application says to a request. Left early, it is told that its client has gone."""
        said: asyncio.Queue[Message | None] = asyncio.Queue()
        has_left = asyncio.Event()
        unread = [body]

        async def receive() -> Message:
            if unread:
                return {"type": "http.request", "body": unread.pop(), "more_body": False}
            await has_left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            said.put_nowait(message)

        working = asyncio.create_task(self._app(dict(scope), receive, send))
        working.add_done_callback(lambda _: said.put_nowait(None))
        try:
            while (message := await said.get()) is not None:
                together = [message]
                while not said.empty() and (more := said.get_nowait()) is not None:
                    together.append(more)
                yield together
                if working.done() and said.empty():
                    break
            await working
        finally:
            has_left.set()
            if not working.done():
                await asyncio.wait([working], timeout=_DRAIN_SECONDS)

    def close(self) -> None:
        """Finish what is under way, and free the GPU."""
        if self._engine is not None:
            self._engine.drain(_DRAIN_SECONDS)
            self._engine.close()
        self._model.close()
