"""A server with the chat page at `/` and canned answers: tests set what each request gets, and when."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from pteron.serving.page import mount

CONTEXT = 2048
LOOK_EVERY = 0.01  # seconds


@dataclass(eq=False)
class Reply:
    """The response to one request: pieces, each a text or fields of a delta, of which `let_go` are sent, or
    an error."""

    pieces: tuple[str | dict[str, Any], ...] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str = ""  # of an error, after the pieces where the status is 200
    code: str | None = None  # of an error
    is_broken: bool = False  # the stream ends in its middle
    finish: str = "stop"
    tokens: int | None = None  # of the prompt; None: its words
    let_go: int = 1_000_000
    body: dict[str, Any] = field(default_factory=dict)  # of the request that got it
    is_asked: threading.Event = field(default_factory=threading.Event)
    is_left: threading.Event = field(default_factory=threading.Event)  # the client disconnected

    def release(self, count: int = 1_000_000) -> None:
        self.let_go += count


class Canned:
    """The application, the requests it got and the replies it will give."""

    def __init__(self) -> None:
        self.app = FastAPI()
        self.start_over("")
        mount(self.app)
        self.app.add_api_route("/v1/models", self._models)
        self.app.add_api_route("/v1/chat/completions", self._chat, methods=["POST"])

    def start_over(self, address: str) -> None:
        self.address = address
        self.key: str | None = None
        self.models = ["canned"]
        self.context: int | None = CONTEXT
        self.modalities: list[str] | None = ["text"]  # None: unknown before the model is loaded
        self.bodies: list[dict[str, Any]] = []
        self._next: list[Reply] = []
        self._every: list[Reply] = []

    def release_all(self) -> None:
        for reply in self._every:
            reply.release()

    def reply(self, *pieces: str | dict[str, Any], held: bool = False, **wishes: Any) -> Reply:
        """Set the reply to the next request without one; `held`: it sends nothing until it is released."""
        reply = Reply(pieces, let_go=0 if held else 1_000_000, **wishes)
        self._next.append(reply)
        self._every.append(reply)
        return reply

    def _models(self, request: Request) -> Response:
        if not self._knows(request):
            return _error(401, "this server needs a valid API key")
        card = {"context_length": self.context, "input_modalities": self.modalities}
        return JSONResponse({"data": [{"id": name, **card} for name in self.models]})

    async def _chat(self, request: Request) -> Response:
        if not self._knows(request):
            return _error(401, "this server needs a valid API key")
        body = await request.json()
        self.bodies.append(body)
        said = _text(body["messages"][-1])
        reply = self._next.pop(0) if self._next else Reply(("You ", "said: ", said))
        reply.body = body
        reply.is_asked.set()
        if reply.status != 200:
            return _error(reply.status, reply.message, reply.headers, reply.code)
        return StreamingResponse(_events(reply), media_type="text/event-stream")

    def _knows(self, request: Request) -> bool:
        return self.key is None or request.headers.get("Authorization") == f"Bearer {self.key}"


def _error(
    status: int, message: str, headers: Mapping[str, str] | None = None, code: str | None = None
) -> Response:
    return JSONResponse({"error": {"message": message, "code": code}}, status, headers)


def _text(message: Mapping[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)


async def _events(reply: Reply) -> AsyncIterator[str]:
    is_whole = False
    try:
        yield _event({"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]})
        for index, piece in enumerate(reply.pieces):
            while index >= reply.let_go:
                await asyncio.sleep(LOOK_EVERY)
            delta = {"content": piece} if isinstance(piece, str) else piece
            yield _event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        while len(reply.pieces) >= reply.let_go:
            await asyncio.sleep(LOOK_EVERY)
        is_whole = True
        if reply.message:
            yield _event({"error": {"message": reply.message}})
        elif not reply.is_broken:
            yield _event({"choices": [{"index": 0, "delta": {}, "finish_reason": reply.finish}]})
            words = sum(len(_text(message).split()) for message in reply.body["messages"])
            prompt = words if reply.tokens is None else reply.tokens
            usage = {"prompt_tokens": prompt, "completion_tokens": len(reply.pieces)}
            yield _event({"choices": [], "usage": usage})
            yield "data: [DONE]\n\n"
    finally:
        if not is_whole:
            reply.is_left.set()


def _event(content: object) -> str:
    return f"data: {json.dumps(content)}\n\n"


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """The address of an application that listens on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join(timeout=30)
