"""connection_class: uvicorn's HTTP connection with a time limit for headers and a bound on connections.

Each connection is a file of the process. Without limits, clients that connect and send nothing take them all.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from pteron.serving.http.limits import Limits
from pteron.system import open_files_max


def connection_class(limits: Limits) -> type[H11Protocol]:
    """The class of one server's connections.

    When there are as many as `limits.connections`, a new one replaces the one that has waited longest without
    a request; if all have one, the new connection is closed.
    """
    most = min(limits.connections, open_files_max() // 2)
    waiting: dict[Connection, None] = {}  # without a request, the longest first

    class Connection(H11Protocol):
        _timer: asyncio.TimerHandle | None = None  # while a request's headers are missing

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._update()
            if len(self.connections) > most:
                next(iter(waiting)).drop()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._update()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._update()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._forget()

        def drop(self) -> None:
            self._forget()
            self.transport.abort()

        def _update(self) -> None:
            """Start or end the wait for headers: the client's next event is a request."""
            if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
                self._forget()
            elif self._timer is None:
                waiting[self] = None
                self._timer = self.loop.call_later(limits.header_seconds, self.drop)

        def _forget(self) -> None:
            waiting.pop(self, None)
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return Connection
