"""The execution of a call whose instructions are timed."""

from __future__ import annotations

from collections.abc import Container

from pteron.format.records import DelegateCall, KernelCall
from pteron.host.values import RuntimeValue
from pteron.runtime.execution import Execution, MethodContext, ValueCheck
from pteron.runtime.trace import DELEGATE, METHOD, OPERATOR, Trace


class TracedExecution(Execution):
    """Adds the call, its operators on the host and its delegates to a trace."""

    def __init__(
        self,
        context: MethodContext,
        values: list[RuntimeValue],
        states: Container[int],
        *,
        keep: bool,
        check: ValueCheck | None,
        trace: Trace,
    ) -> None:
        super().__init__(context, values, states, keep=keep, check=check)
        self._trace = trace

    def run(self) -> None:
        started = self._trace.begin(self._record.name)
        super().run()
        self._trace.leave(METHOD, started, is_call=True)

    def _kernel(self, call: KernelCall, index: int) -> None:
        started = self._trace.enter(index)
        super()._kernel(call, index)
        self._trace.leave(f"native_call_{self._record.operators[call.operator]}", started)
        self._trace.leave(OPERATOR, started)

    def _delegate(self, call: DelegateCall, index: int) -> None:
        started = self._trace.enter(index, call.delegate)
        super()._delegate(call, index)
        self._trace.leave(DELEGATE, started)
