"""The log: one JSON object per line, for each request and for events of the server; log_text.py has the
lines for a person.

Prompts and answers are logged only with `with_prompts`.
"""

from __future__ import annotations

import json
import logging
import time
import traceback
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TextIO

from pteron.gpu.fork import new_lock
from pteron.llm import Statistics
from pteron.llm.engine import Answer, Request

RECORD = "pteron.record"  # the key of a request's record in its ASGI scope
_ANSWER_FIELDS = ("model", "prompt_tokens", "reused_tokens", "new_tokens", "choices", "finish_reasons")
CLIENT_CLOSED_REQUEST = 499  # nginx's status for a client that left; only the log and the metrics have it


@dataclass(slots=True)
class RequestRecord:
    """What the log and the metrics need of a request."""

    id: str
    method: str
    path: str = ""
    arrived: float = field(default_factory=time.perf_counter)
    route: str = "other"
    status: int = 0
    model: str | None = None
    is_streamed: bool = False
    choices: int = 0
    counted: Statistics = field(default_factory=Statistics)  # of routes that do not use an engine
    first_token_seconds: float | None = None  # since arrival
    is_abandoned: bool = False  # the client disconnected before the end
    error: str | None = None  # the code of an error, not its message, which may quote the request
    submitted: float | None = None  # when the engine got its requests
    engine_requests: Sequence[Request] = ()  # one per choice
    answers: Sequence[Answer] = ()  # to these
    prompt: Any = None  # set only if prompts are logged
    answer: list[str] | None = None

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.arrived

    @property
    def prompt_tokens(self) -> int:
        return self._sum("prompt_tokens")

    @property
    def reused_tokens(self) -> int:
        return self._sum("reused_tokens")

    @property
    def new_tokens(self) -> int:
        return self._sum("new_tokens")

    @property
    def finish_reasons(self) -> list[str]:
        """Those of the answers; one that was just cancelled has none yet."""
        return [answer.finish_reason or "cancelled" for answer in self.answers]

    def _sum(self, name: str) -> int:
        counted = (self.counted, *(answer.statistics for answer in self.answers))
        return sum(getattr(statistics, name) for statistics in counted)


def route_of(scope: Mapping[str, Any]) -> str:
    """The path of a request's route, once it has been found; "other" without one."""
    path: str = getattr(scope.get("route"), "path", "other")
    return path


def json_line(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, default=str)


class Logs:
    """Writes lines to a stream, from any thread; without a stream it writes nothing. `line` makes the line of
    an entry; None: the entry is left out."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        with_prompts: bool = False,
        line: Callable[[Mapping[str, Any]], str | None] | None = None,
    ) -> None:
        self._stream = stream
        self._line = line or json_line
        self._lock = new_lock()
        self.with_prompts = with_prompts

    def write(self, event: str, **fields: Any) -> None:
        if self._stream is None:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = self._line({"time": now, "event": event, **fields})
        if line is None:
            return
        with self._lock:
            try:
                self._stream.write(line + "\n")
                self._stream.flush()
            except (OSError, ValueError):  # a full disk or a closed stream: the server continues
                pass

    def request(self, record: RequestRecord) -> None:
        fields: dict[str, Any] = {
            "id": record.id,
            "method": record.method,
            "route": record.route,
            "status": record.status,
            "seconds": round(record.seconds, 6),
        }
        if record.route == "other":
            fields["path"] = record.path
        if record.choices:
            fields |= {name: getattr(record, name) for name in _ANSWER_FIELDS}
            fields["stream"] = record.is_streamed
        if record.first_token_seconds is not None:
            fields["first_token_seconds"] = round(record.first_token_seconds, 6)
        if record.is_abandoned:
            fields["abandoned"] = True
        if record.error:
            fields["error"] = record.error
        if self.with_prompts and record.prompt is not None:
            fields |= {"prompt": record.prompt, "answer": record.answer}
        self.write("request", **fields)

    def failure(self, scope: Mapping[str, Any], error: BaseException) -> None:
        """Log an unexpected error of a request with its traceback."""
        trace = "".join(traceback.format_exception(error))
        self.write("failure", id=scope[RECORD].id, route=route_of(scope), error=repr(error), trace=trace)


@contextmanager
def log_records(name: str, logs: Logs) -> Iterator[None]:
    """Send the log records of a library, such as uvicorn, to the log."""
    logger, handler = logging.getLogger(name), _LogHandler(logs)
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


class _LogHandler(logging.Handler):
    """Writes log records as entries of the log."""

    def __init__(self, logs: Logs) -> None:
        super().__init__()
        self._logs = logs

    def emit(self, record: logging.LogRecord) -> None:
        fields = {"level": record.levelname.lower(), "message": record.getMessage()}
        error = record.exc_info[1] if record.exc_info else None
        if error and not isinstance(error, CancelledError):  # cancelled: the server is shutting down
            fields["trace"] = "".join(traceback.format_exception(error))
        self._logs.write("server", **fields)
