"""listening, run: a socket, and an application that serves on it until a signal.

The first SIGINT, SIGTERM or SIGHUP drains the server: new requests get status 503, running answers have
`grace` seconds to finish. After that, or at the second signal, they are cancelled, and their clients get an
error. If the model loses its device, the server ends with an error.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import ssl
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from pteron.errors import DeviceError, InputError, PteronError
from pteron.format.source import open_file
from pteron.serving.http.connections import connection_class
from pteron.serving.http.limits import Limits
from pteron.serving.http.request_log import log_records
from pteron.serving.http.server_state import ServerState
from pteron.system import IS_WINDOWS

_CANCEL_SECONDS = 5  # for clients to receive the error of a cancelled answer
_REPEAT_SECONDS = 0.2  # between two cancellations: requests that were still being read submit answers late
_DRAIN_SECONDS = 0.05  # between two looks for admitted requests
_BACKLOG = 1024  # connections that wait in the system's queue
_NO_FILES = (errno.EMFILE, errno.ENFILE)
_NO_FILES_SECONDS = 10.0  # between two log lines of this; asyncio tries again each second
_ACCEPTED = 16  # connections that asyncio accepts in one turn of its loop; a limit acts some turns later


class Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, state: ServerState, ready: Callable[[str], None], grace: float
    ):
        super().__init__(config)
        self._state = state
        self._ready = ready
        self._grace = grace
        self._timer: asyncio.TimerHandle | None = None  # of the next cancellation
        self._loop: asyncio.AbstractEventLoop | None = None  # set when the shutdown begins
        self._is_hurried = False  # a second signal came
        self._reason = "the end of the server"  # of the drain
        self._no_files_at = -_NO_FILES_SECONDS
        self.is_lost = False  # the model cannot answer any more

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(self._log_failure)
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_BACKLOG)  # asyncio has one number for both
        if not self.should_exit:
            self._ready(format_address(self.servers[0].sockets[0], self.config.is_ssl))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._state.is_draining = True
        self._loop = asyncio.get_running_loop()
        message = f"draining after {self._reason}; running requests: {self._state.admitted}"
        self._state.logs.write("server", message=message)
        if self._is_hurried or self.is_lost:
            self._cancel_all()
        else:
            self._timer = self._loop.call_later(self._grace, self._end_grace)
        try:
            await self._drain()
            await super().shutdown(sockets)
            if self.force_exit:  # then uvicorn skips this
                await self.lifespan.shutdown()
        finally:
            if self._timer is not None:
                self._timer.cancel()

    async def _drain(self) -> None:
        """Wait for the requests that were admitted. Until they end, the server listens, so that a client that
        comes now gets a 503 instead of a refused connection."""
        while self._state.admitted and not self.force_exit:
            await asyncio.sleep(_DRAIN_SECONDS)

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second; True ends the server."""
        if not self._state.is_healthy:
            self.is_lost = self.should_exit = True
            message = "the model has lost its device, or its engine has ended"
            self._state.logs.write("server", level="error", message=message)
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit and not self._is_hurried:
            self._is_hurried = True
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._cancel_all)
        elif not self.should_exit:
            self._reason = signal.Signals(sig).name
        self._state.is_draining = self.should_exit = True

    def _log_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log what asyncio would print: an exception that nothing else catches."""
        error = context.get("exception")
        fields = {"message": context["message"]}
        if isinstance(error, OSError) and error.errno in _NO_FILES:
            now, before = time.monotonic(), self._no_files_at
            if now - before < _NO_FILES_SECONDS:
                return
            self._no_files_at = now
            why = os.strerror(error.errno).lower()
            fields["message"] = f"new connections wait: {why} (ulimit -n, --max-connections)"
        elif error is not None:
            fields["trace"] = "".join(traceback.format_exception(error))
        self._state.logs.write("server", level="error", **fields)

    def _end_grace(self) -> None:
        message = "the grace period is over: running answers are cancelled"
        self._state.logs.write("server", level="warning", message=message)
        self._cancel_all()

    def _cancel_all(self) -> None:
        """Cancel answers until none is left. Connections whose clients do not read are closed at the end."""
        asyncio.get_running_loop().call_later(_CANCEL_SECONDS, lambda: setattr(self, "force_exit", True))
        self._cancel_repeatedly()

    def _cancel_repeatedly(self) -> None:
        self._state.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_REPEAT_SECONDS, self._cancel_repeatedly)


def format_address(listener: socket.socket, is_secure: bool = False) -> str:
    """The URL of a server."""
    host, port = listener.getsockname()[:2]
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
    """Serve an application on the socket `place` until a signal. `ready` is called with the address once
    requests are accepted. DeviceError: the model cannot answer any more; a new process gets a working device.
    """
    state: ServerState = app.state.server
    config = configure(
        app,
        timeout_graceful_shutdown=int(grace) + _CANCEL_SECONDS,
        ssl_certfile=certificate,
        ssl_keyfile=private_key,
    )
    server = Server(config, state, ready, grace)
    with signal_handler(server.handle_exit), log_records("uvicorn", state.logs):
        server.run([place])
    if server.is_lost:
        raise DeviceError("the server has ended: its model has lost its device, or its engine has ended")


def configure(app: FastAPI, **options: Any) -> uvicorn.Config:
    """uvicorn's configuration for an application of `create_app`, with the limits of its connections."""
    limits: Limits = app.state.server.limits
    return uvicorn.Config(
        app,
        http=connection_class(limits),
        h11_max_incomplete_event_size=limits.header_bytes,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        backlog=_ACCEPTED,
        **options,
    )


def check_certificate(certificate: str | None, private_key: str | None) -> None:
    """Raise for files that TLS cannot use, before the model is loaded. The password of an encrypted key is
    asked for when the server starts."""
    if certificate is None:
        if private_key is not None:
            raise InputError("a private key needs its certificate")
        return
    for file in (certificate, private_key or certificate):
        open_file(file).close()

    def needs_password() -> str:
        raise LookupError

    try:
        with suppress(LookupError):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, private_key, needs_password)
    except ssl.SSLError as error:
        reason = (error.reason or "not in PEM format").lower().replace("_", " ")
        raise InputError(f"{certificate} is no certificate with its private key: {reason}") from None


@contextmanager
def listening(host: str = "127.0.0.1", port: int = 8000) -> Iterator[socket.socket]:
    """A bound socket, opened before the model is loaded; port 0 takes any free one."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise PteronError(f"{host} is not an address to listen at: {error.strerror}") from error
    with listener:
        if not IS_WINDOWS:  # there, this would let two servers share one port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            hint = "; --port takes another one" if error.errno in (errno.EADDRINUSE, errno.EACCES) else ""
            raise PteronError(f"cannot listen at {host}:{port}: {reason}{hint}") from error
        yield listener


@contextmanager
def signal_handler(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle SIGINT, SIGTERM and SIGHUP within a context; the last, unless it is ignored, as under nohup."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    hangup = getattr(signal, "SIGHUP", None)  # Windows has none
    if hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN:
        numbers.append(hangup)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
