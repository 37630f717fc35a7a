"""An engine with scripted answers: for texts that a small model does not generate, and for failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from pteron.llm import LLM, Piece, Statistics
from pteron.serving import Answer, Engine, Load, Request


@dataclass
class Script:
    """The answer to a request: the texts of its pieces, its finish reason or error, whether it hangs, the
    stop string that ends it, and the tokens of its prompt that were in the cache."""

    texts: Sequence[str]
    reason: str = "stop"
    error: Exception | None = None
    hangs: bool = False
    stop: str = ""
    reused: int = 0


class ScriptedAnswer(Answer):
    def __init__(self, script: Script, request: Request) -> None:
        self._script = script
        self._taken = Statistics(len(request.ids), script.reused, stop_string=script.stop)
        self.is_cancelled = False
        self._reason = ""

    @property
    def statistics(self) -> Statistics:
        return self._taken

    @property
    def finish_reason(self) -> str:
        return self._reason

    def cancel(self) -> None:
        self.is_cancelled = True
        self._reason = self._reason or "cancelled"

    def __aiter__(self) -> AsyncIterator[Piece]:
        return self._pieces()

    async def _pieces(self) -> AsyncIterator[Piece]:
        for token, text in enumerate(self._script.texts):
            if self.is_cancelled:
                return
            self._taken.new_tokens += 1
            yield Piece(token, text, -0.5)
            await asyncio.sleep(0)
        while self._script.hangs and not self.is_cancelled:
            await asyncio.sleep(0.005)
        if self._script.error:
            self._reason = "error"
            raise self._script.error
        self._reason = self._reason or self._script.reason

    def __del__(self) -> None:
        pass


@dataclass(eq=False)
class ScriptedModel:
    """The part of an LLM that a server uses."""

    tokenizer: Any
    model: Any
    sampling: Any
    program: Any
    chat_stops: tuple[str, ...] = ()
    conversations: list[dict[str, Any]] = field(default_factory=list)
    prompt: str = "rendered"  # what its template makes of every conversation
    encoded: str = ""  # the last prompt
    reads_images: bool = False
    image_prefill: None = None

    @classmethod
    def like(cls, llm: LLM, template: str | None) -> ScriptedModel:
        tokenizer = copy(llm.tokenizer)
        tokenizer.chat_template = template
        return cls(tokenizer, llm.model, llm.sampling, llm.program)

    @property
    def eos_ids(self) -> tuple[int, ...]:
        ids: tuple[int, ...] = self.tokenizer.eos_ids
        return ids

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text))

    def render_chat(self, messages: Any, tools: Any = None, **variables: Any) -> str:
        self.conversations.append({"messages": messages, "tools": tools, **variables})
        return self.prompt

    def shown(self, text: str) -> str:
        return text

    def encode_rendered(self, text: str, images: Any = ()) -> tuple[int, ...]:
        self.encoded = text
        return (1, 2, 3)


class ScriptedEngine(Engine):
    def __init__(self, llm: Any, play: Callable[[Request], Script]) -> None:
        self.llm = llm
        self.play = play
        self.requests: list[Request] = []
        self.answers: list[ScriptedAnswer] = []

    def submit(self, request: Request) -> Answer:
        self.requests.append(request)
        answer = ScriptedAnswer(self.play(request), request)
        self.answers.append(answer)
        return answer

    @property
    def load(self) -> Load:
        running = sum(not answer.finish_reason for answer in self.answers)
        return Load(running, 0, 1, 0, 0, 0.0, len(self.requests), 0, 0, 0, 0, 0)

    is_alive = True
    is_full = False

    def add_stepping_listener(self, listener: Callable[[str], None]) -> None:
        listener("each answer follows a script")

    def close(self) -> None:
        pass

    def __del__(self) -> None:
        pass


def play(server: Any, script: Callable[[Request], Script] | Script) -> ScriptedEngine:
    """Set the answers of the fixture `scripted` for one test; its engine, without earlier requests."""
    engine: ScriptedEngine = server.loaded.engine
    engine.play = (lambda _: script) if isinstance(script, Script) else script
    engine.requests, engine.answers = [], []
    return engine
