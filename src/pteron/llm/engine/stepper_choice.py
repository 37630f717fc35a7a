"""How the sequences of an engine step: one by one, or all together in slots. That is decided when a second
one is under way for the first time: until then nothing is taken that only several need."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from pteron.errors import UnsupportedError
from pteron.gpu.fork import new_lock
from pteron.llm.batched_model import BatchedModel
from pteron.llm.engine.steppers import BatchedStepper, HostStepper, SingleStepper, Stepper
from pteron.llm.model import LanguageModel
from pteron.llm.reentrancy import non_reentrant
from pteron.llm.text_model import TextModel


class StepperChoice:
    """The stepper of an engine at each moment. Where they are to be `batched`, sequences have slots at once
    or an error says why not; where they are not to be, never."""

    def __init__(self, llm: TextModel, batched: bool | None = None) -> None:
        llm.model.chunks([0])  # refuses programs that take prompts in one size alone
        self._pool = llm.pool
        self._alone = SingleStepper()
        self.stepper: Stepper = self._alone if llm.model.is_resident else HostStepper()
        self.slots = 0  # of sequences that step together
        self.reason = ""  # why each steps by itself, once that is decided
        self._is_decided = False
        self._listeners: list[Callable[[str], None]] = []
        self._lock = new_lock()
        why_not = "the engine was told so" if batched is False else BatchedModel.reason(llm.model)
        if batched and why_not:
            raise UnsupportedError(why_not)
        if why_not:
            self._decide(why_not)
        elif batched or llm.pool.batched is not None:
            self._join(())
            self._decide()

    def __str__(self) -> str:
        if self.slots:
            return f"up to {self.slots} sequences step together"
        return f"each sequence steps by itself: {self.reason or 'no two have been under way at once'}"

    def gather(self, models: Sequence[LanguageModel]) -> None:
        """Several are under way from now on: have them step together, where the device has room for it."""
        if self._is_decided:
            return
        try:
            self._join(models)
        except Exception as error:  # whatever it is, they go on as they did
            self._decide(str(error))
        else:
            self._decide()

    def tell(self, listener: Callable[[str], None]) -> None:
        """Say how sequences step once it is decided: now, or later in the engine's thread."""
        with non_reentrant(self._lock):
            if not self._is_decided:
                self._listeners.append(listener)
                return
        listener(str(self))

    def _join(self, models: Sequence[LanguageModel]) -> None:
        batched = self._pool.gather(models)
        self.stepper = BatchedStepper(batched, self._alone)
        self.slots = batched.slots.count

    def _decide(self, reason: str = "") -> None:
        with non_reentrant(self._lock):
            self.reason, self._is_decided = reason, True
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            try:
                listener(str(self))
            except Exception as error:  # shown as an error of this thread: no request is to fail by it
                found = type(error), error, error.__traceback__, threading.current_thread()
                threading.excepthook(threading.ExceptHookArgs(found))
