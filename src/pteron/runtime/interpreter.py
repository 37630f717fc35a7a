"""The interpreter of ExecuTorch programs: calls of a method, and its states on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from pteron.errors import StateLost
from pteron.format.records import DelegateCall, MethodRecord, TensorRecord
from pteron.host.limits import Budget, Limits
from pteron.host.operator import HostOperator
from pteron.host.values import HostTensor, RuntimeValue
from pteron.plan import TensorPort
from pteron.runtime.delegate import Delegate
from pteron.runtime.execution import Execution, MethodContext, written_by
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
    ) -> None:
        self._where = where
        self._record = record
        self._operators = operators
        self._delegates = delegates
        self._limits = Limits.chosen()
        self._left_behind: dict[int, HostTensor] | None = None  # new states of the last call, until `settle`
        self._lost = False  # a call failed after a delegate changed its states
        self._initial = [initial_value(value) for value in record.values]
        self._states = self._initial_states()
        self._shared = MethodContext(
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
        """Set mutable buffers and delegate states to their initial values."""
        self._states = self._initial_states()
        for delegate in self._delegates:
            delegate.reset()
        self._lost = False

    def run(self, inputs: Sequence[RuntimeValue], *, keep: bool) -> list[RuntimeValue]:
        """Run one call and return its outputs; with `keep`, outputs of delegates stay on the GPU.

        States on the host change only at `settle`, so a call that fails leaves them unchanged. A delegate may
        already have changed its own states when a call fails: then calls raise StateLost until a reset.
        """
        self._left_behind = None
        if self._is_direct:
            return list(self._delegates[0].run(cast(Sequence[Input], inputs), self._shared.wanted[0, keep]))
        return self._interpret(inputs, keep)

    def settle(self) -> None:
        """Keep the states that the last call left, for the next call."""
        if self._left_behind is not None:
            self._states, self._left_behind = self._left_behind, None

    def _interpret(self, inputs: Sequence[RuntimeValue], keep: bool) -> list[RuntimeValue]:
        if self._lost:
            raise StateLost(
                f"{self._where}: an earlier call failed after it changed states; call reset() first"
            )
        values = list(self._initial)
        for id, state in self._states.items():
            values[id] = state
        for id, value in zip(self._record.inputs, inputs, strict=True):
            values[id] = value.protected() if isinstance(value, HostTensor) else value
        execution = Execution(
            self._shared, values, self._states, Budget(self._where, self._limits), keep=keep
        )
        try:
            execution.run()
            outputs = [execution.output(id) for id in self._record.outputs]
            states = {id: self._left(values[id], state) for id, state in self._states.items()}
        except BaseException:
            self._lost = execution.is_changed
            raise
        self._left_behind = states
        return outputs

    def _left(self, value: RuntimeValue, state: HostTensor) -> HostTensor:
        """The state after a call, in its own memory."""
        if value is state or not isinstance(value, HostTensor):
            return state
        owned = value if value.array.flags.writeable else HostTensor(value.array.copy(), value.dtype)
        return owned.protected()

    def _wanted(self) -> dict[tuple[int, bool], list[Wanted | None]]:
        """The outputs of each delegate call, by instruction index and whether outputs stay on the GPU."""
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
        """Whether a call needs no interpreter: the method is one delegate with the same inputs and outputs,
        all are tensors, and there are no states on the host."""
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
        """Values that a delegate reads. If another delegate writes them, they stay on the GPU."""
        return {
            id
            for instruction in self._record.instructions
            if isinstance(instruction, DelegateCall)
            for id in instruction.args[: len(self._delegates[instruction.delegate].executable.inputs)]
        }
