"""A server of a small model, in its own thread and on a free port, and clients for it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import Any

import httpx
import openai
import uvicorn
from fastapi import FastAPI

from pteron.embeddings.encoder import Embedder
from pteron.llm import LLM
from pteron.serving import Engine
from pteron.serving.http import Limits, Logs, create_app
from pteron.serving.http.models import ModelSource
from pteron.serving.http.server import configure
from pteron.speech import Transcriber

NAME = "stories15m"
PATIENCE = 60.0  # seconds, for a busy machine
CHAT: dict[str, Any] = {"model": NAME, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
TEXT: dict[str, Any] = {"model": NAME, "prompt": "Hi", "max_tokens": 2}


class Running:
    """An application behind a socket, and what it has logged."""

    def __init__(self, app: FastAPI, address: str, log: StringIO) -> None:
        self.app = app
        self.address = address
        self._log = log
        self.http = httpx.Client(base_url=address, timeout=PATIENCE)

    @property
    def engine(self) -> Engine:
        engine: Engine = self.loaded.engine
        return engine

    @property
    def loaded(self) -> Any:
        """The only model."""
        (loaded,) = self.app.state.server.models.loaded
        return loaded

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
        """Wait until no request runs or waits."""
        until(lambda: self.engine.load.running == 0 and self.engine.load.waiting == 0)


def openai_client(server: Any, **options: Any) -> openai.OpenAI:
    """The official client, for one server."""
    settings: dict[str, Any] = {"api_key": "none", "max_retries": 0, **options}
    return openai.OpenAI(base_url=f"{server.address}/v1", **settings)


def post_raw(server: Any, body: bytes, length: int | None = None) -> socket.socket:
    """A connection that has sent a request, of `length` bytes by its header, and has read nothing."""
    host, port = server.address.removeprefix("http://").partition("/")[0].split(":")
    connection = socket.create_connection((host, int(port)), PATIENCE)
    head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {length or len(body)}\r\n\r\n".encode() + body)
    return connection


def until(happened: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@contextmanager
def running(
    engine: Engine | LLM | Embedder | Transcriber | Sequence[ModelSource],
    *,
    name: str = NAME,
    limits: Limits | None = None,
    prompts: bool = False,
    page: bool = False,
    **options: Any,
) -> Iterator[Running]:
    """A server that stops with the context."""
    log = StringIO()
    app = create_app(
        engine, name=name, limits=limits, logs=Logs(log, with_prompts=prompts), page=page, **options
    )
    server = uvicorn.Server(configure(app, port=0))
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
    """The events of a stream, without its end mark."""
    lines = [line for line in response.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def error(response: httpx.Response, status: int) -> dict[str, Any]:
    """The error of a response, in OpenAI's format."""
    assert response.status_code == status, response.text
    body = response.json()
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"message", "type", "param", "code"}
    found: dict[str, Any] = body["error"]
    assert found["message"]
    assert found["code"].replace("_", "").isalpha()
    return found
