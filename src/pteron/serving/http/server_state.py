"""The state of a server, with its limits and the answers that are running; a model of it that is loaded."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

from anyio import CapacityLimiter
from fastapi import Request

from pteron.embeddings.encoder import Embedder
from pteron.embeddings.hidden_states import hidden_states
from pteron.llm.engine import Answer, Engine
from pteron.llm.text_model import TextModel
from pteron.serving.api.conversations import Conversations
from pteron.serving.http.errors import ApiError, invalid_value
from pteron.serving.http.limits import Limits
from pteron.serving.http.metrics import Metrics
from pteron.serving.http.models import Models, ModelSource
from pteron.serving.http.request_log import RECORD, Logs, RequestRecord
from pteron.serving.http.telemetry import Traces
from pteron.speech import Transcriber

MODEL, USED = "pteron.model", "pteron.used"  # keys of an ASGI scope: a request's model, loaded and served


@dataclass(eq=False)
class LoadedModel:
    """A language model in an engine, an embedder or a transcriber. `names[0]` is its name in answers, the
    others are aliases. Its LoRA adapters are further models, by their names."""

    server: ServerState
    names: tuple[str, ...]
    engine: Engine | None = None
    embedder: Embedder | None = None
    speech: Transcriber | None = None
    worker: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(1))  # of what needs no engine

    @classmethod
    def of(
        cls, server: ServerState, loaded: Engine | Embedder | Transcriber, names: tuple[str, ...]
    ) -> LoadedModel:
        if isinstance(loaded, Transcriber):
            return cls(server, names, speech=loaded)
        if isinstance(loaded, Embedder):
            return cls(server, names, embedder=loaded)
        loaded.add_stepping_listener(
            lambda message: server.logs.write("engine", model=names[0], message=message)
        )
        return cls(server, names, loaded, hidden_states(loaded.llm))

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
        if self.engine is not None:
            return self.engine.is_alive and self.engine.llm.program.device.is_usable
        other = self.embedder or self.speech
        return other is None or other.program.device.is_usable

    @property
    def is_full(self) -> bool:
        return self.engine is not None and self.engine.is_full

    @property
    def modalities(self) -> list[str]:
        """What it reads."""
        if self.speech:
            return ["audio"]
        return ["text", *(["image"] if self.engine is not None and self.engine.llm.reads_images else [])]


class ServerState:
    """What all requests share. `by_model`: the metrics of answers name their model."""

    def __init__(
        self,
        sources: Sequence[ModelSource],
        limits: Limits,
        logs: Logs,
        traces: Traces | None,
        *,
        keep_alive: float | None,
        by_model: bool,
    ) -> None:
        self.limits = limits
        self.logs = logs
        self.traces = traces
        self.models = Models[LoadedModel](
            sources, lambda loaded, names: LoadedModel.of(self, loaded, names), keep_alive
        )
        self.metrics = Metrics(
            lambda: {one.names[0]: one.engine for one in self.models.loaded if one.engine}, by_model
        )
        self.created = int(time.time())
        self.is_draining = False
        self.admitted = 0  # requests that run and came before the server was draining
        self.answers = WeakSet[Answer]()
        self.conversations = Conversations(limits.conversation_bytes)  # of /v1/responses
        self.imaging = CapacityLimiter(1)

    @property
    def is_healthy(self) -> bool:
        """Whether all models work; not once they are closed."""
        return not self.models.is_closed and all(model.is_healthy for model in self.models.loaded)

    @property
    def is_full(self) -> bool:
        """Whether the queue of every model is full; one that is not loaded can be."""
        loaded = [model.loaded for model in self.models.served]
        return all(model is not None and model.is_full for model in loaded)

    def check_name(self, name: str) -> None:
        if name not in self.models.names:
            known = ", ".join(map(repr, self.models.names))
            message = f"there is no model {name!r}; this server has {known}"
            raise ApiError(404, message, param="model", code="model_not_found")

    def card(self, name: str) -> dict[str, Any]:
        """An entry of /v1/models. It has all of its fields once the model is loaded."""
        model = self.models.find(name)
        card: dict[str, Any] = {"id": name, "object": "model", "created": self.created, "owned_by": "pteron"}
        if model.loaded is not None:
            card["input_modalities"] = model.loaded.modalities
            if model.loaded.engine is not None:
                card["context_length"] = model.loaded.llm.model.context
        if name in model.source.adapters:
            card["parent"] = model.source.names[0]
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


async def open_request(request: Request, name: str | None) -> tuple[LoadedModel, RequestRecord]:
    """The model of a request, and its record; without a name, the only model. It is loaded if it is not, and
    stays loaded to the end of the request."""
    server, record, scope = server_of(request), request.scope[RECORD], request.scope
    if name is None:
        if len(server.models.served) > 1:
            known = ", ".join(map(repr, server.models.names))
            message = f"model is missing; this server has {known}"
            raise invalid_value(message, "model", code="missing_required_parameter")
        name = server.models.names[0]
    server.check_name(name)
    scope[MODEL], scope[USED] = await server.models.open(name)
    model: LoadedModel = scope[MODEL]
    record.model = name if name in model.adapters else model.names[0]
    return model, record


def server_of(request: Request) -> ServerState:
    server: ServerState = request.app.state.server
    return server
