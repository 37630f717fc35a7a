"""Traces of requests: spans, their attributes and parents, and how they are sent."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import httpx
import pytest
from http_fixtures import CHAT, NAME, TEXT, running, until
from scripted import Script, ScriptedEngine
from test_http_embeddings import Letters, spec
from test_serve_command import served

from pteron import DType
from pteron.llm import LLM
from pteron.serving import Engine
from pteron.serving.http.request_log import RequestRecord

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

WHY = "needs the extra `telemetry`"
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter", reason=WHY)
    found: InMemorySpanExporter = memory.InMemorySpanExporter()
    return found


@pytest.fixture
def options(exporter: InMemorySpanExporter) -> Iterator[dict[str, Any]]:
    """Of `running`, for a server whose spans `exporter` gets."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    from pteron.serving.http import Traces

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield {"traces": Traces(provider)}
    provider.shutdown()


def spans(exporter: InMemorySpanExporter, name: str) -> tuple[ReadableSpan, list[ReadableSpan]]:
    """The span of a request, once it has ended, and its children in the order of their times."""

    def named() -> list[ReadableSpan]:
        return [span for span in exporter.get_finished_spans() if span.name == name]

    until(lambda: bool(named()))
    (span,) = named()
    assert span.context is not None
    parent = span.context.span_id
    children = [
        each for each in exporter.get_finished_spans() if each.parent and each.parent.span_id == parent
    ]
    return span, sorted(children, key=lambda child: child.start_time or 0)


def test_a_request_and_its_phases(
    stories_engine: Engine, exporter: InMemorySpanExporter, options: dict[str, Any]
) -> None:
    with running(stories_engine, **options) as server:
        asked = TEXT | {"max_tokens": 6, "temperature": 0.5, "seed": 3, "stop": ["xyz"]}
        response = server.http.post("/v1/completions", json=asked, headers={"traceparent": PARENT})
        usage = response.json()["usage"]
        server.http.get("/health")
        span, children = spans(exporter, "POST /v1/completions")
    assert span.parent is not None
    assert f"{span.parent.trace_id:032x}" in PARENT
    assert f"{span.parent.span_id:016x}" in PARENT
    assert span.kind.name == "SERVER"
    found = dict(span.attributes or {})
    assert {
        "http.request.method": "POST",
        "http.route": "/v1/completions",
        "http.response.status_code": 200,
        "pteron.request.id": response.headers["x-request-id"],
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "pteron",
        "gen_ai.request.model": NAME,
        "gen_ai.request.max_tokens": 6,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.seed": 3,
        "gen_ai.request.stop_sequences": ("xyz",),
        "gen_ai.usage.input_tokens": usage["prompt_tokens"],
        "gen_ai.usage.output_tokens": 6,
        "gen_ai.response.finish_reasons": ("length",),
    }.items() <= found.items()
    assert "Hi" not in str(found)  # the prompt stays private
    assert [child.name for child in children] == ["queue", "prefill", "decode"]
    ends = [span.start_time, *(child.end_time for child in children), span.end_time]
    assert ends == sorted(ends)
    for before, after in pairwise(children):
        assert before.end_time == after.start_time
    assert len(exporter.get_finished_spans()) == 4  # none for /health


def test_several_answers_and_errors(
    stories: LLM, exporter: InMemorySpanExporter, options: dict[str, Any]
) -> None:
    with running(ScriptedEngine(stories, lambda _: Script(["Once"])), **options) as server:
        server.http.post("/v1/chat/completions", json=CHAT | {"n": 2}, headers={"traceparent": "nonsense"})
        span, children = spans(exporter, "POST /v1/chat/completions")
        assert span.parent is None
        assert (span.attributes or {})["gen_ai.request.choice.count"] == 2
        assert {(child.attributes or {})["pteron.choice"] for child in children} == {0, 1}
        exporter.clear()
        server.http.post("/v1/chat/completions", json=CHAT | {"model": "other"})
        span, children = spans(exporter, "POST /v1/chat/completions")
        assert (span.attributes or {})["error.type"] == "model_not_found"
        assert span.status.status_code.name == "UNSET"  # the client's fault
        assert not children
        exporter.clear()
        failing: ScriptedEngine = server.loaded.engine
        failing.play = lambda _: Script([], error=RuntimeError("broken"))
        server.http.post("/v1/chat/completions", json=CHAT)
        span, _ = spans(exporter, "POST /v1/chat/completions")
        assert (span.status.status_code.name, span.status.description) == ("ERROR", "internal_error")


def test_a_route_without_an_engine(exporter: InMemorySpanExporter, options: dict[str, Any]) -> None:
    with running(Letters(spec(DType.I64, 1, 16, free=True)), **options) as server:
        server.http.post("/v1/embeddings", json={"model": NAME, "input": ["cat", "dog"]})
        span, children = spans(exporter, "POST /v1/embeddings")
    found = dict(span.attributes or {})
    assert (found["gen_ai.operation.name"], found["gen_ai.usage.input_tokens"]) == ("embeddings", 6)
    assert not children


def test_queued_requests(stories: LLM, exporter: InMemorySpanExporter, options: dict[str, Any]) -> None:
    """A request waits for another one; the queue's span says how long."""
    with Engine(stories, running=1) as engine, running(engine, **options) as server:
        first = threading.Thread(target=lambda: server.http.post("/v1/completions", json=LONG))
        first.start()
        until(lambda: engine.load.running == 1)
        with httpx.Client(base_url=server.address, timeout=60) as other:
            other.post("/v1/chat/completions", json=CHAT)
        first.join()
        _, (queue, *_) = spans(exporter, "POST /v1/chat/completions")
    assert queue.name == "queue"
    assert (queue.end_time or 0) - (queue.start_time or 0) > 1e6  # nanoseconds


LONG = TEXT | {"max_tokens": 60, "logit_bias": {"1": -100, "2": -100}}


# pteron serve --traces ---------------------------------------------------------------------------


class Collector(BaseHTTPRequestHandler):
    """Takes what the exporter sends."""

    received: list[tuple[str, bytes]] = []  # noqa: RUF012

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        self.received.append((self.path, self.rfile.read(size)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.mark.parametrize("way", ["option", "variable"])
def test_the_command_sends_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason=WHY)
    Collector.received.clear()
    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        place = f"http://127.0.0.1:{collector.server_port}"
        if way == "variable":
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", place)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "story-teller")
        with served(tmp_path, *(["--traces", place] if way == "option" else [])) as server:
            httpx.post(f"{server.address}/v1/completions", json=TEXT, timeout=60).raise_for_status()
            server.process.terminate()
            assert server.ended() == 0
        collector.shutdown()
    assert {path for path, _ in Collector.received} == {"/v1/traces"}
    content = b"".join(body for _, body in Collector.received)
    assert b"story-teller" in content
    assert b"prefill" in content


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (None, None),  # as the variables say
        ("http://host:4318", "http://host:4318/v1/traces"),
        ("http://host:4318/", "http://host:4318/v1/traces"),
        ("http://host/own/path", "http://host/own/path"),
    ],
)
def test_where_traces_are_sent(given: str | None, sent: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    http = pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter", reason=WHY)
    from pteron.serving.http import open_traces

    endpoints: list[Any] = []

    def exporter(endpoint: str | None) -> Any:
        endpoints.append(endpoint)
        return Mock()

    monkeypatch.setattr(http, "OTLPSpanExporter", exporter)
    with open_traces(given):
        assert endpoints == [sent]


def test_tokens_from_the_cache(stories: LLM, exporter: InMemorySpanExporter, options: dict[str, Any]) -> None:
    with running(ScriptedEngine(stories, lambda _: Script(["Once"], reused=2)), **options) as server:
        server.http.post("/v1/completions", json=TEXT | {"prompt": [5, 6, 7], "stream": True})
        found = dict(spans(exporter, "POST /v1/completions")[0].attributes or {})
    assert found["gen_ai.usage.input_tokens"] == 3
    assert found["gen_ai.usage.cache_read.input_tokens"] == 2
    assert found["gen_ai.request.stream"] is True
    assert 0 < found["gen_ai.response.time_to_first_chunk"] < 60


def test_an_endpoint_that_does_not_answer(tmp_path: Path) -> None:
    """The server works and ends, and its log stays JSON."""
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason=WHY)
    with served(tmp_path, "--traces", "http://127.0.0.1:9") as server:
        httpx.post(f"{server.address}/v1/completions", json=TEXT, timeout=60).raise_for_status()
        server.process.terminate()
        assert server.ended() == 0
        assert any("export" in line.get("message", "").lower() for line in server.lines())


def test_a_collector_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last spans are given up, so that a server ends in time."""
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason=WHY)
    from pteron.serving.http import open_traces, telemetry

    monkeypatch.setattr(telemetry, "_FLUSH_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with open_traces(f"http://127.0.0.1:{silent.getsockname()[1]}") as traces:
            traces.request(RequestRecord("1", "GET"), {})
            began = time.monotonic()
        assert time.monotonic() - began < 5


def test_nothing_is_imported_without_traces() -> None:
    code = (
        "import sys; import pteron.serving.http.app, pteron.cli.serve\n"
        "unwanted = ('opentelemetry.sdk', 'opentelemetry.exporter')\n"
        "print([name for name in sys.modules if name.startswith(unwanted)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_without_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option needs them; a variable that is meant for other programs does not."""
    import argparse
    import io

    from pteron.cli.serve import _open_traces
    from pteron.errors import PteronError
    from pteron.serving.http import Logs, Traces

    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    log = io.StringIO()
    needed = r"sending traces needs .* pip install .*\[telemetry\]"
    asked = argparse.Namespace(traces="http://127.0.0.1:4318")
    with pytest.raises(PteronError, match=needed), _open_traces(asked, Logs(log)):
        pass
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    with _open_traces(argparse.Namespace(traces=None), Logs(log)) as traces:
        assert traces is None
    assert "no traces are sent" in json.loads(log.getvalue())["message"]
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(PteronError, match=r"a trace needs .* pip install .*\[telemetry\]"):
        Traces(Mock())
