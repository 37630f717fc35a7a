"""A call for the shapes alone: shapes of inputs in, shapes of outputs out. Delegates are planned, host
operators run on zeros that take no memory, and nothing is computed on a GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pteron.dtypes import DType
from pteron.errors import GraphError, PteronError
from pteron.format.records import DelegateCall, MethodRecord, TensorRecord
from pteron.graph import Shape, SymInt, Tensor
from pteron.host.lookup import find_operator
from pteron.host.operator import HostOperator
from pteron.host.values import HostTensor, RuntimeValue
from pteron.plan import Compiled
from pteron.runtime.checks import live_slices
from pteron.runtime.execution import Execution, MethodContext
from pteron.runtime.method_memory import initial_states, initial_value, views_of_memory
from pteron.runtime.staging import live_shapes, live_values

_JUMPS_MAX = 1000  # of one call: a loop may depend on values, which are zeros here


class DryRun:
    """Calls of a method without its data; `in_full` includes all launches, so that the device's limits
    count."""

    def __init__(self, record: MethodRecord, delegates: Sequence[Compiled], *, in_full: bool = False) -> None:
        """A PteronError if the machine lacks a host operator."""
        self._in_full = in_full
        operators = list(map(_operator, record.operators))
        executables = [compiled.executable for compiled in delegates]
        self.record = record
        self.nodes = len(record.instructions) + sum(len(each.prepared.graph.nodes) for each in delegates)
        self._delegates = delegates
        self._states = initial_states(record, operators, executables)
        self._context = MethodContext(
            record.name,
            record,
            [replace(operator, run=operator.run_dry or operator.run) for operator in operators],
            (),
            initial=[initial_value(value) for value in record.values],
            wanted=defaultdict(list),
            views=views_of_memory(record, operators, executables),
            live_slices=live_slices(record, operators),
        )

    def outputs(self, shapes: Mapping[int, Shape]) -> tuple[Shape, ...] | None:
        """The shapes of the outputs, empty for those that are no tensors; None if the method does not take
        these shapes of inputs, by value id. Other tensors have their maximum shape, live integers are 0."""
        values = list(self._context.initial)
        for id, state in self._states.items():
            values[id] = state
        for id in self.record.inputs:
            given = self.record.values[id]
            if isinstance(given, TensorRecord):
                values[id] = zeros(shapes.get(id, given.sizes), given.dtype)
            elif given is None:
                values[id] = 0
        try:
            execution = _DryExecution(
                self._context, values, self._states, self._delegates, in_full=self._in_full
            )
            execution.run()
            found = [execution.output(id) for id in self.record.outputs]
        except PteronError:
            return None
        return tuple(value.array.shape if isinstance(value, HostTensor) else () for value in found)


def zeros(shape: Shape, dtype: DType) -> HostTensor:
    """Zeros that share the memory of one element."""
    return HostTensor(np.broadcast_to(np.zeros((), dtype.numpy), shape), dtype)


def _operator(name: str) -> HostOperator:
    found = find_operator(name)
    if found is None:
        raise GraphError(f"{name} is not supported")
    return found


class _DryExecution(Execution):
    """Delegates and jumps of a call for the shapes alone."""

    def __init__(
        self,
        context: MethodContext,
        values: list[RuntimeValue],
        states: Mapping[int, HostTensor],
        delegates: Sequence[Compiled],
        *,
        in_full: bool,
    ) -> None:
        super().__init__(context, values, states, keep=False)
        self._compiled = delegates
        self._in_full = in_full
        self._jumps = 0

    def _is_true(self, condition: RuntimeValue, index: int) -> bool:
        self._jumps += 1
        if self._jumps > _JUMPS_MAX:
            raise GraphError(f"{self._where}: more than {_JUMPS_MAX} jumps")
        return super()._is_true(condition, index)

    def _delegate(self, call: DelegateCall, index: int) -> None:
        compiled = self._compiled[call.delegate]
        executable, graph = compiled.executable, compiled.prepared.graph
        ports = zip(call.args, executable.inputs, strict=False)
        inputs = [self._delegate_input(self.values[id], port, index) for id, port in ports]
        shapes, values = live_shapes(executable, inputs), live_values(executable, inputs)
        walked = compiled.walk(shapes, values, only_shapes=not self._in_full)
        if self._in_full:
            walked.finish()
        for id, value in zip(call.args[len(inputs) :], graph.outputs, strict=True):
            record = self._record.values[id]
            if isinstance(value, SymInt) and not isinstance(record, TensorRecord):
                self.values[id] = int(walked.integers[value.id])
            elif isinstance(record, TensorRecord):
                live = (
                    walked.shapes.get(value.id, value.shape_max)
                    if isinstance(value, Tensor)
                    else record.sizes
                )
                self.values[id] = zeros(tuple(map(int, live)), record.dtype)
