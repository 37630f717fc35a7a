"""What an application serves: a model by its names, and the answers that are under way."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

from anyio import CapacityLimiter
from fastapi import Request

from pteron.llm.engine import Answer, Engine
from pteron.llm.text_model import TextModel
from pteron.serving.embedder import Embedder
from pteron.serving.http.errors import ApiError
from pteron.serving.http.limits import Limits
from pteron.serving.http.logs import Logs
from pteron.serving.http.metrics import Metrics
from pteron.serving.http.record import KEY, Record


@dataclass(eq=False)
class Service:
    """A model with its limits. `names[0]` is what the model is called in answers, the rest are aliases."""

    names: tuple[str, ...]
    engine: Engine | None
    embedder: Embedder | None
    limits: Limits
    metrics: Metrics
    logs: Logs
    created: int = field(default_factory=lambda: int(time.time()))
    is_draining: bool = False
    answers: WeakSet[Answer] = field(default_factory=WeakSet)
    embedding: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(1))

    @property
    def llm(self) -> TextModel:
        return self.writer.llm

    @property
    def writer(self) -> Engine:
        """The engine; an error where the model writes no text."""
        if self.engine is None:
            message = f"{self.names[0]} makes embeddings; it writes no text"
            raise ApiError(400, message, param="model", code="no_text")
        return self.engine

    @property
    def is_well(self) -> bool:
        """Whether the engine runs, and the model still has its device."""
        if self.engine is not None:
            return self.engine.is_alive and self.engine.llm.program.device.is_usable
        return self.embedder is None or self.embedder.program.device.is_usable

    def check_name(self, name: str) -> None:
        if name not in self.names:
            message = f"there is no model {name!r} here; there is {self.names[0]!r}"
            raise ApiError(404, message, param="model", code="model_not_found")

    def card(self, name: str) -> dict[str, Any]:
        """The model by one of its names, as /v1/models lists it."""
        card: dict[str, Any] = {"id": name, "object": "model", "created": self.created, "owned_by": "pteron"}
        if self.engine is not None:
            card["context_length"] = self.engine.llm.model.context
        return card

    def cancel(self) -> None:
        """End all answers that are under way."""
        for answer in list(self.answers):
            answer.cancel()


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def record_of(request: Request) -> Record:
    record: Record = request.scope[KEY]
    return record
