"""The engine of one LLM, for its streams and batches: made when the first is asked for."""

from __future__ import annotations

from pteron.errors import DeviceError, InputError
from pteron.gpu.fork import new_lock
from pteron.llm.continuing import Continuation
from pteron.llm.engine import Answer, Engine, Request
from pteron.llm.reentrancy import non_reentrant
from pteron.llm.text_model import TextModel

_WAITING = 1 << 20  # who asks in the same process waits, and is not refused


class LazyEngine:
    """Continuations of one model, made at once as far as it has sequences for them."""

    def __init__(self, llm: TextModel) -> None:
        self._llm = llm
        self._engine: Engine | None = None
        self._is_closed = False
        self._lock = new_lock()

    def submit(self, asked: Continuation) -> Answer:
        """Begin one; how far it is, its answer knows."""
        if asked.resident is not None:
            raise InputError("resident is a setting of generate: what is made side by side is made one way")
        request = Request(
            asked.ids,
            asked.max_new_tokens,
            asked.sampling,
            asked.stop,
            stop_ids=asked.stop_ids,
            grammar=asked.grammar,
        )
        with non_reentrant(self._lock):
            if self._is_closed:
                raise DeviceError("the model is closed")
            if self._engine is None or not self._engine.is_alive:
                self._engine = Engine(self._llm, waiting=_WAITING)
            answer = self._engine.submit(request)
        answer.statistics.dropped_tokens = asked.dropped
        return answer

    def close(self) -> None:
        """End what is under way with an error, and take no more."""
        with non_reentrant(self._lock):
            self._is_closed = True
            engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()
