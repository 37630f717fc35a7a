"""Service: the model of an application, its names and limits, and the answers that are running."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

from anyio import CapacityLimiter
from fastapi import Request

from pteron.llm.engine import Answer, Engine
from pteron.llm.text_model import TextModel
from pteron.serving.encoder import Embedder
from pteron.serving.http.conversations import Conversations
from pteron.serving.http.errors import ApiError, invalid_value
from pteron.serving.http.limits import Limits
from pteron.serving.http.metrics import Metrics
from pteron.serving.http.models import Models
from pteron.serving.http.request_log import RECORD, Logs, RequestRecord
from pteron.serving.http.telemetry import Traces
from pteron.serving.speech import Transcriber

SERVICE, USED = "pteron.service", "pteron.used"  # keys of an ASGI scope: a request's model


@dataclass(eq=False)
class Service:
    """`names[0]` is the name of the model in answers, the others are aliases. The model's LoRA adapters are
    further models, by their names."""

    names: tuple[str, ...]
    engine: Engine | None
    embedder: Embedder | None
    limits: Limits
    metrics: Metrics
    logs: Logs
    created: int = field(default_factory=lambda: int(time.time()))
    is_draining: bool = False
    admitted: int = 0  # requests that run and came before the server was draining
    answers: WeakSet[Answer] = field(default_factory=WeakSet)
    traces: Traces | None = None
    speech: Transcriber | None = None
    models: Models[Service] | None = None  # several models, each with a service of its own; this one has none
    conversations: Conversations = field(init=False)  # of /v1/responses
    embedding: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(1))
    imaging: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(1))

    def __post_init__(self) -> None:
        self.conversations = Conversations(self.limits.conversation_bytes)

    @property
    def llm(self) -> TextModel:
        return self.text_engine.llm

    @property
    def adapters(self) -> tuple[str, ...]:
        return self.engine.llm.model.adapters if self.engine is not None else ()

    @property
    def text_engine(self) -> Engine:
        """The engine; an error if the model has none."""
        if self.engine is None:
            does = "transcribes sound" if self.speech else "makes embeddings"
            message = f"{self.names[0]} {does} only, not text"
            raise invalid_value(message, "model", code="no_text")
        return self.engine

    @property
    def is_healthy(self) -> bool:
        """Whether the engine runs and the model has its device."""
        if self.models is not None:
            return all(service.is_healthy for service in self.models.loaded)
        if self.engine is not None:
            return self.engine.is_alive and self.engine.llm.program.device.is_usable
        other = self.embedder or self.speech
        return other is None or other.program.device.is_usable

    @property
    def is_full(self) -> bool:
        """Whether the queue of every model is full; one that is not loaded can be."""
        if self.models is not None:
            return all(model.service is not None and model.service.is_full for model in self.models.served)
        return self.engine is not None and self.engine.is_full

    @property
    def all_names(self) -> tuple[str, ...]:
        """What a request may name: models, their aliases and LoRA adapters."""
        return self.models.names if self.models is not None else (*self.names, *self.adapters)

    def check_name(self, name: str) -> None:
        if name not in self.all_names:
            first = self.models.names if self.models is not None else (self.names[0], *self.adapters)
            known = ", ".join(map(repr, first))
            message = f"there is no model {name!r}; this server has {known}"
            raise ApiError(404, message, param="model", code="model_not_found")

    def card(self, name: str) -> dict[str, Any]:
        """An entry of /v1/models. One of several models has all of its fields once it is loaded."""
        names, adapters = self.names, self.adapters
        if self.models is not None:
            model = self.models.find(name)
            if model.service is not None:
                return model.service.card(name) | {"created": self.created}
            names, adapters = model.source.names, model.source.adapters
        card: dict[str, Any] = {"id": name, "object": "model", "created": self.created, "owned_by": "pteron"}
        if self.models is None:
            card["input_modalities"] = ["audio"] if self.speech else ["text"]
        if self.engine is not None:
            card["context_length"] = self.engine.llm.model.context
            card["input_modalities"] += ["image"] if self.engine.llm.reads_images else []
        if name in adapters:
            card["parent"] = names[0]
        return card

    @contextmanager
    def admission(self) -> Iterator[None]:
        """Count a request that has been accepted as running."""
        count = int(not self.is_draining)  # 0 of /health and /ready, which a draining server answers too
        self.admitted += count
        try:
            yield
        finally:
            self.admitted -= count

    def cancel(self) -> None:
        """Cancel all running answers."""
        for answer in list(self.answers):
            answer.cancel()


async def open_request(request: Request, model: str | None) -> tuple[Service, RequestRecord]:
    """The service and the record of a request for a model; without a name, for the only one. One of several
    models is loaded if it is not, and stays loaded to the end of the request."""
    service, record, scope = service_of(request), request.scope[RECORD], request.scope
    if model is None:
        if service.models is not None and len(service.models.served) > 1:
            known = ", ".join(map(repr, service.all_names))
            message = f"model is missing; this server has {known}"
            raise invalid_value(message, "model", code="missing_required_parameter")
        model = service.all_names[0]
    service.check_name(model)
    if service.models is not None and SERVICE not in scope:
        scope[SERVICE], scope[USED] = await service.models.open(model)
    service = scope.setdefault(SERVICE, service)
    record.model = model if model in service.adapters else service.names[0]
    return service, record


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service
