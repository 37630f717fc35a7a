"""Metrics as Prometheus reads them: what requests took, and what the engine has to do now."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pteron.llm.engine import Engine, Load
from pteron.serving.http.record import Record

_FIRST = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_BETWEEN = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_WHOLE = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_NOW = {
    "running": ("requests_running", "Answers that are being written"),
    "waiting": ("requests_waiting", "Answers that wait for their turn"),
    "sequences": ("sequences", "Sequences that live on the device"),
    "cache_bytes": ("cache_bytes", "Bytes of the device that their caches take"),
    "slots": ("slots", "Sequences that can step together, 0 where each steps by itself"),
    "tokens_per_second": ("tokens_per_second", "Tokens that were lately drawn in a second"),
}
_TOTALS = {
    "requests": ("engine_requests", "Answers that were asked of the engine"),
    "prompt_tokens": ("prompt_tokens", "Tokens of prompts"),
    "reused_tokens": ("prompt_tokens_reused", "Tokens of prompts that a cache still held"),
    "new_tokens": ("generated_tokens", "Tokens that were drawn"),
    "cancelled": ("requests_cancelled", "Answers that were given up"),
    "failed": ("requests_failed", "Answers that an error ended"),
}


class Metrics:
    """The metrics of one application, in a registry of its own."""

    def __init__(self, engine: Engine | None) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "pteron_http_requests",
            "Requests by route and status",
            ["route", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "pteron_http_request_seconds",
            "From a request's arrival to the end of its answer",
            ["route"],
            buckets=_WHOLE,
            registry=self.registry,
        )
        self._first = Histogram(
            "pteron_time_to_first_token_seconds",
            "From a request's arrival to the first token of its answer",
            buckets=_FIRST,
            registry=self.registry,
        )
        self._between = Histogram(
            "pteron_time_between_tokens_seconds",
            "From one token of an answer to the next",
            buckets=_BETWEEN,
            registry=self.registry,
        )
        self._abandoned = Counter(
            "pteron_http_abandoned", "Requests whose client left before the end", registry=self.registry
        )
        if engine is not None:
            self.registry.register(_OfEngine(engine))

    def first_token(self, seconds: float) -> None:
        self._first.observe(seconds)

    def next_token(self, seconds: float) -> None:
        self._between.observe(seconds)

    def request(self, record: Record) -> None:
        """A request that has ended."""
        self._requests.labels(record.route, str(record.status)).inc()
        self._seconds.labels(record.route).observe(record.seconds)
        if record.is_abandoned:
            self._abandoned.inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)


class _OfEngine(Collector):
    """The engine's own counts, as they are when somebody looks."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        load: Load = self._engine.load
        for field, (name, purpose) in _NOW.items():
            yield GaugeMetricFamily(f"pteron_{name}", purpose, value=getattr(load, field))
        for field, (name, purpose) in _TOTALS.items():
            yield CounterMetricFamily(f"pteron_{name}", purpose, value=getattr(load, field))
