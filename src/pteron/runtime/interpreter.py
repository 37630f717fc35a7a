"""The ExecuTorch program interpreter: calls of a method, and what they leave to one another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from pteron.errors import StateLost
from pteron.format import DelegateCall, MethodRecord, TensorRecord
from pteron.host.limits import Budget, Limits
from pteron.host.operator import HostOperator
from pteron.host.values import HostTensor, RuntimeValue
from pteron.plan import TensorPort
from pteron.runtime.call_lock import CallLock
from pteron.runtime.delegate import Delegate
from pteron.runtime.execution import Running, Shared, written_by
from pteron.runtime.outputs import Wanted
from pteron.runtime.shared_memory import shared_memory
from pteron.runtime.staging import Input
from pteron.runtime.states import initial_states, initial_value


class Interpreter:
    """One method, and its states on the host."""

    def __init__(
        self,
        where: str,
        record: MethodRecord,
        operators: Sequence[HostOperator],
        delegates: Sequence[Delegate],
        turn: CallLock,
    ) -> None:
        self._where = where
        self._record = record
        self._operators = operators
        self._delegates = delegates
        self._limits = Limits.chosen()
        self._turn = turn
        self._left_behind: dict[int, HostTensor] | None = None  # states of a call that is not settled
        self._lost = False  # whether a call failed after a delegate had changed its states
        self._initial = [initial_value(value) for value in record.values]
        self._states = self._initial_states()
        self._shared = Shared(
            where,
            record,
            operators,
            delegates,
            initial=self._initial,
            wanted=self._wanted(),
            views=shared_memory(record, operators, [delegate.executable for delegate in delegates]),
        )
        self._is_direct = self._is_one_delegate()

    def reset(self) -> None:
        """Bring mutable buffers and delegate states back to their initial values."""
        self._turn.check_free(self._where)
        self._states = self._initial_states()
        for delegate in self._delegates:
            delegate.reset()
        self._lost = False

    def run(self, inputs: Sequence[RuntimeValue], *, keep: bool) -> list[RuntimeValue]:
        """The outputs of one call; `keep` leaves tensors on the GPU where a delegate made them.

        What a call leaves in a state on the host is there once the call is settled. Where it fails, states on
        the host are what they were; if a delegate has changed its own by then, a reset has to come first.
        """
        self._turn.check_free(self._where)
        self._left_behind = None
        try:
            self._turn.is_taken = True
            if self._is_direct:
                return list(
                    self._delegates[0].run(cast(Sequence[Input], inputs), self._shared.wanted[0, keep])
                )
            return self._interpret(inputs, keep)
        finally:
            self._turn.is_taken = False

    def settle(self) -> None:
        """Let the next call begin with what the last one left behind."""
        if self._left_behind is not None:
            self._states, self._left_behind = self._left_behind, None

    def unsettle(self) -> None:
        """Say that states on the host, where there are any, may be those of a call that nobody saw."""
        self._lost = self._lost or bool(self._states)

    def _interpret(self, inputs: Sequence[RuntimeValue], keep: bool) -> list[RuntimeValue]:
        if self._lost:
            raise StateLost(f"{self._where}: a call failed after it had changed states; call reset() first")
        values = list(self._initial)
        for id, state in self._states.items():
            values[id] = state
        for id, value in zip(self._record.inputs, inputs, strict=True):
            values[id] = value.protected() if isinstance(value, HostTensor) else value
        running = Running(self._shared, values, self._states, Budget(self._where, self._limits), keep=keep)
        try:
            running.run()
            outputs = [running.output(id) for id in self._record.outputs]
            states = {id: self._left(values[id], state) for id, state in self._states.items()}
        except BaseException:
            self._lost = running.is_changed
            raise
        self._left_behind = states
        return outputs

    def _left(self, value: RuntimeValue, state: HostTensor) -> HostTensor:
        """What a call leaves to the next in a state, in memory that nobody else has."""
        if value is state or not isinstance(value, HostTensor):
            return state
        owned = value if value.array.flags.writeable else HostTensor(value.array.copy(), value.dtype)
        return owned.protected()

    def _wanted(self) -> dict[tuple[int, bool], list[Wanted | None]]:
        """What each delegate call is to give, by its index and whether outputs stay on the GPU."""
        read_on_gpu = self._gpu_values()

        def wanted(id: int, keep: bool) -> Wanted | None:
            record = self._record.values[id]
            if not isinstance(record, TensorRecord):
                return None
            on_gpu = id in read_on_gpu or (keep and id in self._record.outputs)
            return Wanted(record.dtype, on_gpu and id not in self._states)

        return {
            (index, keep): [wanted(id, keep) for id in written_by(instruction, self._delegates)]
            for index, instruction in enumerate(self._record.instructions)
            if isinstance(instruction, DelegateCall)
            for keep in (False, True)
        }

    def _initial_states(self) -> dict[int, HostTensor]:
        executables = [delegate.executable for delegate in self._delegates]
        return initial_states(self._where, self._record, self._operators, executables, self._limits)

    def _is_one_delegate(self) -> bool:
        """Whether a call is the only delegate's: that takes and gives what the method does, all of it tensors
        that no call leaves to the next."""
        record = self._record
        if len(record.instructions) != 1 or len(self._delegates) != 1 or self._states:
            return False
        (call,) = record.instructions
        ports = (*self._delegates[0].executable.inputs, *self._delegates[0].executable.outputs)
        return (
            isinstance(call, DelegateCall)
            and call.args == (*record.inputs, *record.outputs)
            and all(isinstance(record.values[id], TensorRecord) for id in call.args)
            and all(isinstance(port, TensorPort) for port in ports)
        )

    def _gpu_values(self) -> set[int]:
        """Values that a delegate reads: worth leaving on the GPU where another delegate made them."""
        return {
            id
            for instruction in self._record.instructions
            if isinstance(instruction, DelegateCall)
            for id in instruction.args[: len(self._delegates[instruction.delegate].executable.inputs)]
        }
