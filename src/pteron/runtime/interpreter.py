"""The interpreter of ExecuTorch programs: calls of a method, and its states on the host."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeAlias, cast

from pteron.errors import ShapeError, StateLost
from pteron.format.records import DelegateCall, MethodRecord, TensorRecord
from pteron.host.operator import HostOperator
from pteron.host.tensors import GpuTensor, HostResult
from pteron.host.values import HostTensor, RuntimeValue
from pteron.plan import TensorPort
from pteron.runtime.checks import live_slices
from pteron.runtime.delegate import Delegate
from pteron.runtime.execution import Execution, HostObserver, MethodContext, ValueCheck, written_by
from pteron.runtime.method_memory import initial_states, initial_value, views_of_memory
from pteron.runtime.outputs import Wanted
from pteron.runtime.staging import Input
from pteron.runtime.targets import Targets
from pteron.runtime.trace import Trace
from pteron.runtime.traced_execution import TracedExecution

StateValue: TypeAlias = HostTensor | GpuTensor


class Interpreter:
    """One method, and its states on the host."""

    def __init__(
        self,
        where: str,
        record: MethodRecord,
        operators: Sequence[HostOperator],
        delegates: Sequence[Delegate],
        trace: Trace | None = None,
    ) -> None:
        self._trace = trace
        self._where = where
        self._record = record
        self._operators = operators
        self._delegates = delegates
        self._executables = [delegate.executable for delegate in delegates]
        self._new_states: dict[int, StateValue] | None = None  # of the last call, until `commit_states`
        self._lost = False  # a call failed after a delegate changed its states
        self._states = self._initial_states()
        self._context = MethodContext(
            where,
            record,
            operators,
            delegates,
            initial=[initial_value(value) for value in record.values],
            wanted=self._wanted(),
            views=views_of_memory(record, operators, self._executables),
            live_slices=live_slices(record, operators),
        )
        self._is_direct = self._is_one_delegate()
        self.observer: HostObserver | None = None  # of host operators, for profiles

    def reset(self) -> None:
        """Set mutable buffers and delegate states to their initial values."""
        self._states = self._initial_states()
        for delegate in self._delegates:
            delegate.reset()
        self._lost = False

    def run(
        self, inputs: Sequence[RuntimeValue], *, keep: bool, targets: Targets | None = None
    ) -> list[RuntimeValue]:
        """Run one call and return its outputs; with `keep`, outputs of delegates stay on the GPU.

        States on the host change only at `commit_states`, so a call that fails leaves them unchanged. A
        delegate may already have changed its own states when a call fails: then calls raise StateLost until a
        reset. Outputs that do not fit the targets leave all states as they were.
        """
        self._new_states = None
        if targets is None:
            return self._run(inputs, keep, None)
        is_alone = len(self._record.instructions) == 1  # a delegate's plan has the shapes of all outputs
        may_fail = targets.is_live and not is_alone
        kept = [each for each in self._delegates if may_fail and each.executable.states]
        for delegate in kept:
            delegate.keep_states(delegate.executable.states)
        outputs = self._run(inputs, keep, targets.check if is_alone else None)
        try:
            targets.check(self._record.outputs, outputs)
        except ShapeError:
            for delegate in kept:
                delegate.restore_states(delegate.executable.states)
                delegate.states.is_valid = True
            raise
        return outputs

    def _run(
        self, inputs: Sequence[RuntimeValue], keep: bool, check: ValueCheck | None
    ) -> list[RuntimeValue]:
        if not self._is_direct:
            return self._interpret(inputs, keep, check)
        ids, (delegate,) = self._record.outputs, self._delegates
        given = cast(Sequence[Input], inputs)
        return [*delegate.run(given, self._context.wanted[0, keep], check and partial(check, ids))]

    def commit_states(self) -> None:
        """Keep the states of the last call for the next one."""
        if self._new_states is not None:
            self._states, self._new_states = self._new_states, None

    def _interpret(
        self, inputs: Sequence[RuntimeValue], keep: bool, check: ValueCheck | None
    ) -> list[RuntimeValue]:
        if self._lost:
            raise StateLost(
                f"{self._where}: an earlier call failed after it changed states; call reset() first"
            )
        values = list(self._context.initial)
        for id, state in self._states.items():
            values[id] = state
        for id, value in zip(self._record.inputs, inputs, strict=True):
            values[id] = value.protected() if isinstance(value, HostTensor) else value
        execution = self._execution(values, keep, check)
        try:
            execution.run()
            outputs = [execution.output(id) for id in self._record.outputs]
            states = {id: _new_state(values[id], state) for id, state in self._states.items()}
            states |= {id: _own(execution.output(new)) for id, new in self._record.carried}
        except BaseException:
            self._lost = execution.is_changed
            raise
        self._new_states = states
        return outputs

    def _execution(self, values: list[RuntimeValue], keep: bool, check: ValueCheck | None) -> Execution:
        context, states = self._context, self._states
        if self._trace is None:
            return Execution(context, values, states, keep=keep, check=check, observer=self.observer)
        return TracedExecution(context, values, states, keep=keep, check=check, trace=self._trace)

    def _wanted(self) -> dict[tuple[int, bool], list[Wanted | None]]:
        """The outputs of each delegate call, by instruction index and whether outputs stay on the GPU."""
        calls = {
            index: call
            for index, call in enumerate(self._record.instructions)
            if isinstance(call, DelegateCall)
        }
        # If another delegate writes what a delegate reads, it stays on the GPU.
        read_on_gpu = {
            id for call in calls.values() for id in call.args[: len(self._executables[call.delegate].inputs)]
        }
        read_on_gpu |= {new for state, new in self._record.carried if state in read_on_gpu}

        def wanted(id: int, keep: bool) -> Wanted | None:
            record = self._record.values[id]
            if not isinstance(record, TensorRecord):
                return None
            on_gpu = id in read_on_gpu or (keep and id in self._record.outputs)
            return Wanted(record.dtype, on_gpu and id not in self._states)

        return {
            (index, keep): [wanted(id, keep) for id in written_by(call, self._delegates)]
            for index, call in calls.items()
            for keep in (False, True)
        }

    def _initial_states(self) -> dict[int, StateValue]:
        return dict(initial_states(self._record, self._operators, self._executables))

    def _is_one_delegate(self) -> bool:
        """Whether a call needs no interpreter: the method is one delegate with the same inputs and outputs,
        all are tensors, and there are no states on the host."""
        record = self._record
        if len(record.instructions) != 1 or len(self._delegates) != 1 or self._states or self._trace:
            return False
        (call,) = record.instructions
        ports = (*self._executables[0].inputs, *self._executables[0].outputs)
        return (
            isinstance(call, DelegateCall)
            and call.args == (*record.inputs, *record.outputs)
            and all(isinstance(record.values[id], TensorRecord) for id in call.args)
            and all(isinstance(port, TensorPort) for port in ports)
        )


def _own(value: RuntimeValue) -> StateValue:
    """A value as a state: on the GPU, or in memory that no output shares."""
    if isinstance(value, GpuTensor):
        return value
    assert isinstance(value, (HostTensor, HostResult))  # as its record says
    array = value.numpy() if isinstance(value, HostResult) else value.array
    return HostTensor(array.copy(), value.dtype).protected()


def _new_state(value: RuntimeValue, state: StateValue) -> StateValue:
    """The state after a call, in its own memory."""
    if value is state or not isinstance(value, HostTensor):
        return state
    owned = value if value.array.flags.writeable else HostTensor(value.array.copy(), value.dtype)
    return owned.protected()
