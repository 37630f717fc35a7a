"""listening, run: a place to be reached at, and an application there until a signal ends it.

The first SIGINT or SIGTERM takes no more requests and lets those under way finish, for `grace` seconds; what
is left then, or at a second signal, is ended and told so. Where the model can answer nothing any more, the
server ends by itself, with an error.
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

from pteron.errors import DeviceError, PteronError
from pteron.serving.http.logs import Logs, ServerHandler
from pteron.serving.http.protocol import Protocol
from pteron.serving.http.service import Service

_CUT_SECONDS = 5  # for streams that were ended to say so
_AGAIN_SECONDS = 0.2  # until those that began meanwhile are ended too
_BACKLOG = 1024


class Server(uvicorn.Server):
    """uvicorn's, which tells when it is ready and how it ends."""

    def __init__(self, config: uvicorn.Config, service: Service, ready: Callable[[str], None], grace: float):
        super().__init__(config)
        self._service = service
        self._ready = ready
        self._grace = grace
        self._cutting: asyncio.TimerHandle | None = None
        self._ending: asyncio.AbstractEventLoop | None = None  # once it does
        self._is_hurried = False  # a second signal came
        self.is_lost = False  # nothing could be answered any more

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._ready(address_of(self.servers[0].sockets[0], self.config.is_ssl))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.is_draining = True
        self._ending = asyncio.get_running_loop()
        if self._is_hurried or self.is_lost:
            self._cut_all()
        else:
            self._cutting = self._ending.call_later(self._grace, self._cut)
        try:
            await super().shutdown(sockets)
            if self.force_exit:  # then uvicorn leaves the application where it is
                await self.lifespan.shutdown()
        finally:
            if self._cutting is not None:
                self._cutting.cancel()

    async def on_tick(self, counter: int) -> bool:
        """Whether to end, asked ten times a second."""
        if not self._service.is_well:
            self.is_lost = self.should_exit = True
            message = "the model has lost its device, or its engine has ended: nothing can be answered"
            self._service.logs.write("server", level="error", message=message)
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit and not self._is_hurried:
            self._is_hurried = True
            if self._ending is not None:
                self._ending.call_soon_threadsafe(self._cut_all)
        self.should_exit = True

    def _cut(self) -> None:
        self._service.logs.write("server", level="warning", message="the time to finish is over")
        self._cut_all()

    def _cut_all(self) -> None:
        """End what is still under way, and what begins meanwhile; readers are told. Who does not take what is
        sent is left behind after a while."""
        asyncio.get_running_loop().call_later(_CUT_SECONDS, self._leave)
        self._cut_again()

    def _cut_again(self) -> None:
        self._service.cancel()
        if self._cutting is not None:
            self._cutting.cancel()
        self._cutting = asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._cut_again)

    def _leave(self) -> None:
        self.force_exit = True


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
    the address once requests are taken. A DeviceError where the model can answer nothing any more: another
    process gets a device that works."""
    service: Service = app.state.service
    config = uvicorn.Config(
        app,
        http=Protocol,
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
    if server.is_lost:
        raise DeviceError("the server has ended: its model has lost its device, or its engine has ended")


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
