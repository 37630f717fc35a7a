"""A server of a small model, in a thread of its own on a port that is free, and clients for it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from pteron.llm import LLM
from pteron.serving import Engine
from pteron.serving.embedder import Embedder
from pteron.serving.http import Limits, Logs, create_app
from pteron.serving.http.protocol import Protocol

NAME = "stories15m"
PATIENCE = 60.0  # seconds that a busy machine is given for what should take none


class Running:
    """An application behind a socket, and what it has logged."""

    def __init__(self, app: FastAPI, address: str, log: StringIO) -> None:
        self.app = app
        self.address = address
        self._log = log
        self.http = httpx.Client(base_url=address, timeout=PATIENCE)

    @property
    def engine(self) -> Engine:
        engine: Engine = self.app.state.service.engine
        return engine

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.getvalue().splitlines()]

    def logged(self, response: httpx.Response) -> dict[str, Any]:
        """The line of a request that has been answered."""
        number = response.headers["x-request-id"]

        def found() -> list[dict[str, Any]]:
            return [line for line in self.log() if line["event"] == "request" and line["id"] == number]

        until(lambda: bool(found()))
        return found()[0]

    def settle(self) -> None:
        """Wait until nothing is under way."""
        until(lambda: self.engine.load.running == 0 and self.engine.load.waiting == 0)


def until(happened: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Wait for something that is to happen soon."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@contextmanager
def running(
    engine: Engine | LLM | Embedder,
    *,
    limits: Limits | None = None,
    prompts: bool = False,
    page: bool = False,
    **options: Any,
) -> Iterator[Running]:
    """A server for as long as it is needed."""
    log = StringIO()
    app = create_app(
        engine, name=NAME, limits=limits, logs=Logs(log, with_prompts=prompts), page=page, **options
    )
    header_bytes = app.state.service.limits.header_bytes
    config = uvicorn.Config(
        app, port=0, http=Protocol, h11_max_incomplete_event_size=header_bytes, log_config=None, lifespan="on"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    found = Running(app, f"http://127.0.0.1:{port}", log)
    try:
        yield found
    finally:
        found.http.close()
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()


def events(response: httpx.Response) -> list[Any]:
    """What a stream of events holds, less its end mark."""
    lines = [line for line in response.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
