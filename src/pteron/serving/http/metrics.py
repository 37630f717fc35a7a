"""Metrics for Prometheus: the duration of requests, and the engine's load."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pteron.llm.engine import Engine
from pteron.serving.http.request_log import RequestRecord

# Buckets, in seconds.
_FIRST = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_BETWEEN = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_REQUEST = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
# Fields of the engine's load -> name and help of the metric.
_GAUGES = {
    "running": ("requests_running", "Answers that are being generated"),
    "waiting": ("requests_waiting", "Answers that wait in the queue"),
    "sequences": ("sequences", "Sequences on the device"),
    "cache_bytes": ("cache_bytes", "Bytes of KV caches on the device"),
    "slots": ("slots", "Sequences that can step in one batch; 0: each steps alone"),
    "tokens_per_second": ("tokens_per_second", "Tokens generated per second, over the last seconds"),
}
_COUNTERS = {
    "requests": ("engine_requests", "Answers requested from the engine"),
    "prompt_tokens": ("prompt_tokens", "Tokens of prompts"),
    "reused_tokens": ("prompt_tokens_reused", "Tokens of prompts that were reused from a cache"),
    "new_tokens": ("generated_tokens", "Tokens generated"),
    "proposed_tokens": ("speculation_proposed_tokens", "Tokens proposed by speculative decoding"),
    "accepted_tokens": ("speculation_accepted_tokens", "Proposed tokens that were accepted"),
    "cancelled": ("requests_cancelled", "Answers that were cancelled"),
    "failed": ("requests_failed", "Answers that ended with an error"),
}


class Metrics:
    """The metrics of one application, in its own registry. `engines` are those of models by their names. With
    `by_model` the metrics of answers have a label `model`."""

    def __init__(self, engines: Callable[[], Mapping[str, Engine]], by_model: bool = False) -> None:
        self.registry = CollectorRegistry()
        self._labels = ["model"] if by_model else []
        text = "Requests by route and status"
        self._requests = Counter("pteron_http_requests", text, ["route", "status"], registry=self.registry)
        text = "Requests whose client disconnected before the end"
        self._abandoned = Counter("pteron_http_abandoned", text, registry=self.registry)
        text = "From a request's arrival to the end of its answer"
        self._seconds = self._histogram("http_request", text, _REQUEST, ["route"])
        text = "From a request's arrival to the first token of its answer"
        self._first = self._histogram("time_to_first_token", text, _FIRST, self._labels)
        text = "From one token of an answer to the next"
        self._between = self._histogram("time_between_tokens", text, _BETWEEN, self._labels)
        self.registry.register(_EngineCollector(engines, self._labels))

    def first_token(self, seconds: float, model: str) -> None:
        self._of(self._first, model).observe(seconds)

    def next_token(self, seconds: float, model: str) -> None:
        self._of(self._between, model).observe(seconds)

    def _of(self, metric: Histogram, model: str) -> Histogram:
        return metric.labels(model) if self._labels else metric

    def request(self, record: RequestRecord) -> None:
        """Count a request that has ended."""
        self._requests.labels(record.route, str(record.status)).inc()
        self._seconds.labels(record.route).observe(record.seconds)
        if record.is_abandoned:
            self._abandoned.inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def _histogram(
        self, name: str, text: str, buckets: Sequence[float], labels: Sequence[str] = ()
    ) -> Histogram:
        return Histogram(f"pteron_{name}_seconds", text, labels, buckets=buckets, registry=self.registry)


class _EngineCollector(Collector):
    """Reads the load of engines when the metrics are requested."""

    def __init__(self, engines: Callable[[], Mapping[str, Engine]], labels: Sequence[str]) -> None:
        self._engines = engines
        self._labels = labels

    def collect(self) -> Iterator[Metric]:
        loads = {name: engine.load for name, engine in self._engines().items()}
        for kind, fields in ((GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _COUNTERS)):
            for field, (name, purpose) in fields.items():
                family = kind(f"pteron_{name}", purpose, labels=self._labels)
                for model, load in loads.items():
                    family.add_metric([model][: len(self._labels)], getattr(load, field))
                yield family
