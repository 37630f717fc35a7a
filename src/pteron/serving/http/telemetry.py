"""Traces: a span for each request, with its time in the queue, in prefill and in decode, for OpenTelemetry
(the extra `telemetry`).

A request's span is made when the request has ended, from its record; its parent is the one of the header
`traceparent`. Attributes follow the semantic conventions of HTTP and of generative AI. Prompts and answers
are not recorded.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pteron
from pteron.extras import need
from pteron.serving.http.request_log import RequestRecord

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import TracerProvider

# The SDK's own variables with an address to send spans to.
VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PATH = "/v1/traces"  # where a collector takes spans
_FLUSH_SECONDS = 5.0  # for a collector to take the last spans
_OPERATIONS = {
    "/v1/completions": "text_completion",
    "/api/generate": "text_completion",
    "/v1/embeddings": "embeddings",
}
_PHASES = {"queue": "queue_seconds", "prefill": "prompt_seconds", "decode": "decode_seconds"}
_SAMPLING = ("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty")


class Traces:
    """Makes spans with the tracer of a provider."""

    def __init__(self, provider: TracerProvider) -> None:
        self._trace = need("opentelemetry.trace", "a trace", "telemetry")
        context = need("opentelemetry.trace.propagation.tracecontext", "a trace", "telemetry")
        self._propagator = context.TraceContextTextMapPropagator()
        self._tracer = provider.get_tracer("pteron", pteron.__version__)

    def request(self, record: RequestRecord, headers: Mapping[bytes, bytes]) -> None:
        """The spans of a request that has ended."""
        end = time.time_ns()
        start = end - round(1e9 * record.seconds)
        span = self._tracer.start_span(
            f"{record.method} {record.route}",
            self._parent(headers),
            self._trace.SpanKind.SERVER,
            {**_http_attributes(record), **_model_attributes(record)},
            start_time=start,
        )
        if record.status >= 500:
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, record.error))
        inside = self._trace.set_span_in_context(span)
        if record.submitted is not None:
            self._add_phases(record, inside, start + round(1e9 * (record.submitted - record.arrived)))
        span.end(end)

    def _add_phases(self, record: RequestRecord, inside: Context, start: int) -> None:
        """The children of a request, for each of its answers."""
        for index, answer in enumerate(record.answers):
            begun = start
            for name, field in _PHASES.items():
                ended = begun + round(1e9 * getattr(answer.statistics, field))
                if ended > begun or name == "queue":
                    attributes = {"pteron.choice": index}
                    child = self._tracer.start_span(name, inside, attributes=attributes, start_time=begun)
                    child.end(ended)
                begun = ended

    def _parent(self, headers: Mapping[bytes, bytes]) -> Context:
        names = (b"traceparent", b"tracestate")
        carrier = {name.decode(): headers[name].decode("latin-1") for name in names if name in headers}
        context: Context = self._propagator.extract(carrier)
        return context


@contextmanager
def open_traces(endpoint: str | None = None) -> Iterator[Traces]:
    """Traces that are sent over HTTP (OTLP) to an endpoint, such as http://localhost:4318; by default as the
    variables OTEL_* say. The end of the context sends what is left, for some seconds at most."""
    if endpoint is not None and not urlsplit(endpoint).path.strip("/"):
        endpoint = endpoint.rstrip("/") + _PATH
    export = need("opentelemetry.exporter.otlp.proto.http.trace_exporter", "sending traces", "telemetry")
    resources = need("opentelemetry.sdk.resources", "sending traces", "telemetry")
    sdk = need("opentelemetry.sdk.trace", "sending traces", "telemetry")
    batches = need("opentelemetry.sdk.trace.export", "sending traces", "telemetry")
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override these.
    named = resources.Resource({"service.name": "pteron", "service.version": pteron.__version__})
    resource = named.merge(resources.OTELResourceDetector().detect())
    provider = sdk.TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(batches.BatchSpanProcessor(export.OTLPSpanExporter(endpoint=endpoint)))
    try:
        yield Traces(provider)
    finally:
        # The SDK has no limit of its own that is short enough for a process that a supervisor stops.
        flush = threading.Thread(target=provider.shutdown, daemon=True)
        flush.start()
        flush.join(_FLUSH_SECONDS)


def _http_attributes(record: RequestRecord) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "http.request.method": record.method,
        "http.route": record.route,
        "http.response.status_code": record.status,
        "url.path": record.path,
        "pteron.request.id": record.id,
    }
    if record.error is not None:
        attributes["error.type"] = record.error
    return attributes


def _model_attributes(record: RequestRecord) -> dict[str, Any]:
    """Those of generative AI, if a model was used."""
    if record.model is None:
        return {}
    found: dict[str, Any] = {
        "gen_ai.operation.name": _OPERATIONS.get(record.route, "chat"),
        "gen_ai.provider.name": "pteron",
        "gen_ai.request.model": record.model,
        "gen_ai.response.model": record.model,
        "gen_ai.usage.input_tokens": record.prompt_tokens,
    }
    if not record.answers:
        return found
    (first, *_) = record.engine_requests
    found |= {
        "gen_ai.request.stream": record.is_streamed,
        "gen_ai.request.max_tokens": first.max_new_tokens,
        "gen_ai.usage.output_tokens": record.new_tokens,
        "gen_ai.usage.cache_read.input_tokens": record.reused_tokens,
        "gen_ai.response.finish_reasons": tuple(record.finish_reasons),
    }
    found |= {f"gen_ai.request.{name}": getattr(first.sampling, name) for name in _SAMPLING}
    if record.choices > 1:
        found["gen_ai.request.choice.count"] = record.choices
    if first.stop:
        found["gen_ai.request.stop_sequences"] = first.stop
    if record.first_token_seconds is not None:
        found["gen_ai.response.time_to_first_chunk"] = record.first_token_seconds
    return found
