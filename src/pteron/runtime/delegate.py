"""A delegate of one sequence: the session, which all sequences share, with this sequence's states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pteron.gpu import PassTimer, Replay, States
from pteron.plan import Plan
from pteron.runtime.outputs import Output, Wanted
from pteron.runtime.prerecord import PrerecordedCalls
from pteron.runtime.session import OutputCheck, OutputCommands, Session
from pteron.runtime.staging import Input


class Delegate:
    """Runs a graph with the states of one sequence."""

    def __init__(self, session: Session) -> None:
        self.session = session  # which all sequences share
        self.executable = session.executable
        self.device = session.device
        self.counters = session.counters
        self.states: States = session.states()
        self._kept: States | None = None
        self._prerecorded = PrerecordedCalls()
        # Called with the inputs and wanted outputs of every call of a method.
        self.observer: Callable[[Sequence[Input], Sequence[Wanted | None]], None] | None = None

    def run(
        self,
        inputs: Sequence[Input],
        wanted: Sequence[Wanted | None],
        check: OutputCheck | None = None,
    ) -> list[Output]:
        """Run the graph without waiting (`Session.run`)."""
        if self.observer is not None:
            self.observer(inputs, wanted)
        return self.session.run(inputs, wanted, self.states, self._prerecorded, check)

    def submit(
        self,
        inputs: Sequence[Input],
        then: OutputCommands | None = None,
        timer: PassTimer | None = None,
        *,
        states_only: bool = False,
    ) -> int:
        """Run the graph and further commands without waiting (`Session.submit`), for loops."""
        return self.session.submit(inputs, self.states, then, timer, states_only=states_only)

    def recorded(self, inputs: Sequence[Input]) -> tuple[Plan, Replay]:
        """The plan for these inputs and its replay over this sequence's states, for tools."""
        return self.session.recorded(inputs, self.states)

    def reset(self) -> None:
        """Set caches and other states to their initial values."""
        with self.device.lock:
            self.session.check_open()
            self.states.reset()

    def move(self, states: States) -> None:
        """Copy the states to other memory and continue there."""
        with self.device.lock:
            before = self.states
            states.copy(before, self._sizes(self.executable.states))
            states.is_valid = before.is_valid
            self._prerecorded.drop(is_open=not self.session.is_closed)
            self._prerecorded = PrerecordedCalls()
            self.states = states
            before.close()

    def keep_states(self, ids: Iterable[int]) -> None:
        """Keep a copy of some states, as all commands submitted so far leave them."""
        with self.device.lock:
            if self._kept is None:
                self._kept = States(self.device, self.executable, ids)
            self._kept.copy(self.states, self._sizes(ids))

    def restore_states(self, ids: Iterable[int]) -> None:
        """Set states to their kept copy, before any command submitted later."""
        with self.device.lock:
            assert self._kept is not None
            self.states.copy(self._kept, self._sizes(ids))

    def _sizes(self, ids: Iterable[int]) -> dict[int, int]:
        return {id: self.executable.states[id].bytes for id in ids}

    def close(self) -> None:
        """Free the states."""
        with self.device.lock:
            self._prerecorded.drop(is_open=not self.session.is_closed)
            self.states.close()
            if self._kept is not None:
                self._kept.close()
