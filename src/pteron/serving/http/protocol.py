"""Bytes of a connection -> requests, by uvicorn and h11; what is no request is told in OpenAI's shape too."""

from __future__ import annotations

import json
import sys

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from pteron.serving.http.body import CLOSE
from pteron.serving.http.errors import ApiError

TOO_LARGE = 431


class Protocol(H11Protocol):
    """h11's, whose headers have a bound while they come: once they are whole, the gate measures them."""

    def send_400_response(self, msg: str) -> None:
        """Answer what h11 could not read, and close the connection."""
        error = sys.exc_info()[1]  # this is called where it is dealt with
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == TOO_LARGE:
            told = headers_too_large(self.conn._max_incomplete_event_size)
        else:
            told = ApiError(400, "this is no HTTP request", code="invalid_request")
        body = json.dumps(told.body).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        for event in (
            h11.Response(status_code=told.status, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def headers_too_large(bound: int) -> ApiError:
    message = f"the request's headers are too large; this server takes {bound} bytes of them"
    return ApiError(TOO_LARGE, message, code="headers_too_large", headers=CLOSE)
