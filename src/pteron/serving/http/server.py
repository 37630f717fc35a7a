"""listening, run: a place to be reached at, and an application there until a signal ends it.

The first SIGINT or SIGTERM takes no more requests and lets those under way finish, for `grace` seconds; what
is left then, or at a second signal, ends at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from fastapi import FastAPI

from pteron.errors import PteronError
from pteron.serving.http.logs import Logs, ServerHandler
from pteron.serving.http.service import Service

_CUT_SECONDS = 5  # for streams that were ended to say so
_BACKLOG = 1024


class Server(uvicorn.Server):
    """uvicorn's, which tells when it is ready and how it ends."""

    def __init__(self, config: uvicorn.Config, service: Service, ready: Callable[[str], None], grace: float):
        super().__init__(config)
        self._service = service
        self._ready = ready
        self._grace = grace
        self._cutting: asyncio.TimerHandle | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._ready(address_of(self.servers[0].sockets[0], self.config.is_ssl))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.is_draining = True
        seconds = 0.0 if self.force_exit else self._grace
        self._cutting = asyncio.get_running_loop().call_later(seconds, self._cut)
        try:
            await super().shutdown(sockets)
        finally:
            self._cutting.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            self._service.cancel()
            self.force_exit = True
        self.should_exit = True

    def _cut(self) -> None:
        """End what is still under way; readers are told."""
        self._service.logs.write("server", level="warning", message="the time to finish is over")
        self._service.cancel()


def address_of(place: socket.socket, is_secure: bool = False) -> str:
    """Where a server is reached, as an address in a browser."""
    host, port = place.getsockname()[:2]
    if ":" in host:
        host = f"[{host}]"
    return f"{'https' if is_secure else 'http'}://{host}:{port}"


def run(
    app: FastAPI,
    place: socket.socket,
    *,
    grace: float = 30.0,
    certificate: str | None = None,
    private_key: str | None = None,
    ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve an application at a place that is listened at, until a signal ends it. `ready` is called with
    the address once requests are taken."""
    service: Service = app.state.service
    config = uvicorn.Config(
        app,
        http="h11",  # the one whose headers have a bound
        h11_max_incomplete_event_size=service.limits.header_bytes,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=int(grace) + _CUT_SECONDS,
        ssl_certfile=certificate,
        ssl_keyfile=private_key,
    )
    server = Server(config, service, ready, grace)
    with _signals_heeded(), _logged(service.logs):
        server.run([place])


@contextmanager
def listening(host: str = "127.0.0.1", port: int = 8000) -> Iterator[socket.socket]:
    """A place to be reached at, before there is anything to reach; port 0 takes one that is free."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        place = socket.socket(family, kind, protocol)
    except OSError as error:
        raise PteronError(f"{host} is no address to listen at: {error.strerror}") from error
    with place:
        if os.name == "posix":  # elsewhere this would let two servers have one port
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            place.bind(address)
        except OSError as error:
            raise PteronError(f"cannot listen at {host}:{port}: {error.strerror}") from error
        yield place


@contextmanager
def _signals_heeded() -> Iterator[None]:
    """uvicorn raises again the signals that ended it, for whoever heeds them: nobody, it has ended."""
    before = {number: signal.signal(number, _nothing) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _nothing(number: int, frame: FrameType | None) -> None:
    pass


@contextmanager
def _logged(logs: Logs) -> Iterator[None]:
    """What the web server says goes to the log."""
    logger, handler = logging.getLogger("uvicorn"), ServerHandler(logs)
    level, propagates = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagates
