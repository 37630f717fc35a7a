"""Logs: one JSON object in a line for each request, and for what the server itself has to say.

PrefillQueue and answers are never in them, unless a server is told to log them.
"""

from __future__ import annotations

import json
import logging
import traceback
from asyncio import CancelledError
from datetime import UTC, datetime
from typing import Any, TextIO

from pteron.gpu.fork import new_lock
from pteron.serving.http.record import Record


class Logs:
    """Writes lines to a stream, from any thread; to none, nothing."""

    def __init__(self, stream: TextIO | None = None, *, with_prompts: bool = False) -> None:
        self._stream = stream
        self._lock = new_lock()
        self.with_prompts = with_prompts

    def write(self, event: str, **fields: Any) -> None:
        if self._stream is None:
            return
        line = json.dumps({"time": _now(), "event": event, **fields}, default=str)
        with self._lock:
            try:
                self._stream.write(line + "\n")
                self._stream.flush()
            except (OSError, ValueError):  # a full disk, or nobody left to read: the server goes on
                pass

    def request(self, record: Record) -> None:
        fields: dict[str, Any] = {
            "id": record.id,
            "method": record.method,
            "route": record.route,
            "status": record.status,
            "seconds": round(record.seconds, 6),
        }
        if record.choices:
            fields |= {
                "model": record.model,
                "stream": record.is_streamed,
                "prompt_tokens": record.prompt_tokens,
                "reused_tokens": record.reused_tokens,
                "new_tokens": record.new_tokens,
                "choices": record.choices,
                "finish_reasons": record.finish_reasons,
            }
        if record.first_token_seconds is not None:
            fields["first_token_seconds"] = round(record.first_token_seconds, 6)
        if record.is_abandoned:
            fields["abandoned"] = True
        if record.error:
            fields["error"] = record.error
        if self.with_prompts and record.prompt is not None:
            fields |= {"prompt": record.prompt, "answer": record.answer}
        self.write("request", **fields)

    def failure(self, record: Record, error: BaseException) -> None:
        """An error that nobody foresaw."""
        trace = "".join(traceback.format_exception(error))
        self.write("failure", id=record.id, route=record.route, error=repr(error), trace=trace)


class ServerHandler(logging.Handler):
    """What the web server says, as lines of the same log."""

    def __init__(self, logs: Logs) -> None:
        super().__init__()
        self._logs = logs

    def emit(self, record: logging.LogRecord) -> None:
        fields = {"level": record.levelname.lower(), "message": record.getMessage()}
        error = record.exc_info[1] if record.exc_info else None
        if error and not isinstance(error, CancelledError):  # which says nothing but that the server ended
            fields["trace"] = "".join(traceback.format_exception(error))
        self._logs.write("server", **fields)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
