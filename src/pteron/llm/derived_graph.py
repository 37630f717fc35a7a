"""DerivedGraph: a graph made from a model's own, run over the KV caches of the model's sequences.

In: a graph whose states have the ids of the model's. Out: submissions that read and write these states, with
weights that both graphs share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from weakref import WeakKeyDictionary

from pteron.gpu import BorrowedStates
from pteron.graph import Graph
from pteron.llm.model import LanguageModel
from pteron.passes import prepare
from pteron.plan import Compiled
from pteron.runtime.session import Counters, OutputCommands, Session
from pteron.runtime.staging import Input


class DerivedGraph:
    """Borrows the states with the ids `caches` from each sequence; other states are its own. The caller holds
    the device's lock."""

    def __init__(self, model: LanguageModel, graph: Graph, caches: Iterable[int]) -> None:
        assert model.delegate is not None
        compiled = Compiled(prepare(graph), model.delegate.executable.target)
        self.session = Session(compiled.executable, model.device, Counters(), compiled)
        self._caches = self.session.executable.states.keys() & set(caches)
        self._states: WeakKeyDictionary[LanguageModel, BorrowedStates] = WeakKeyDictionary()

    def submit(
        self,
        sequence: LanguageModel,
        tokens: Sequence[int],
        inputs: Sequence[Input],
        then: OutputCommands | None = None,
    ) -> int:
        """Submit tokens from the sequence's position on, given by `inputs`, and then the commands that `then`
        makes; without it, outputs are not computed. Returns the submission's number."""
        self.session.counters.calls += 1
        with sequence.writing(tokens):
            return self.session.submit(
                tuple(inputs), self._states_of(sequence), then, states_only=then is None
            )

    def _states_of(self, sequence: LanguageModel) -> BorrowedStates:
        assert sequence.delegate is not None
        lender, states = sequence.delegate.states, self._states.get(sequence)
        if states is None or states.lender is not lender:  # its cache may have moved
            if states is not None:
                states.close()
            states = BorrowedStates(self.session.executable, lender, self._caches)
            self._states[sequence] = states
        return states

    def close(self) -> None:
        for states in self._states.values():
            states.close()
        self.session.close()
