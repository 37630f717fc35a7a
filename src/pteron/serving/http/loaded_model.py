"""A model of the server that is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pteron.llm.engine import Engine
from pteron.llm.text_model import TextModel
from pteron.serving.encoder import Embedder
from pteron.serving.hidden_states import hidden_states
from pteron.serving.http.errors import invalid_value
from pteron.serving.speech import Transcriber

if TYPE_CHECKING:
    from pteron.serving.http.server_state import ServerState


@dataclass(eq=False)
class LoadedModel:
    """A language model in an engine, an embedder or a transcriber. `names[0]` is its name in answers, the
    others are aliases. Its LoRA adapters are further models, by their names."""

    server: ServerState
    names: tuple[str, ...]
    engine: Engine | None = None
    embedder: Embedder | None = None
    speech: Transcriber | None = None

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
