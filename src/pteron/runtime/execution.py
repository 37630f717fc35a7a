"""The execution of one call of a method: its values, and the effect of each instruction.

Tensors move between host and GPU only if an instruction needs them there.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import ParamSpec, TypeAlias, TypeVar, cast

import numpy as np

from pteron.errors import GraphError, HostError, ShapeError
from pteron.format.records import (
    DelegateCall,
    EValue,
    FreeCall,
    IndexList,
    JumpFalseCall,
    KernelCall,
    MethodRecord,
    MoveCall,
    TensorRecord,
)
from pteron.host.operator import HostOperator, check_integer
from pteron.host.tensors import GpuTensor, HostResult
from pteron.host.values import HostTensor, RuntimeValue, UnsetTensor, describe, fits
from pteron.ops.requirement import RequirementError
from pteron.ops.shapes import check_live_slice
from pteron.plan import SymbolPort
from pteron.plan.executable import Port
from pteron.runtime.checks import LiveSlice, describe_record
from pteron.runtime.delegate import Delegate
from pteron.runtime.method_memory import Views, reshaped
from pteron.runtime.outputs import Wanted
from pteron.runtime.staging import Input

# Gets the name of a host operator, or COPIES, and its seconds.
HostObserver: TypeAlias = Callable[[str, float], None]
COPIES = "copies for host operators"
# Gets the ids and values that a delegate is about to write; an error keeps it from running.
ValueCheck: TypeAlias = Callable[[Sequence[int], Sequence[RuntimeValue]], None]
_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class MethodContext:
    """What all calls of a method share."""

    where: str
    record: MethodRecord
    operators: Sequence[HostOperator]
    delegates: Sequence[Delegate]
    initial: list[RuntimeValue]  # values before the first instruction, without states and inputs
    # outputs of each delegate call, by instruction index and whether outputs stay on the GPU
    wanted: Mapping[tuple[int, bool], list[Wanted | None]]
    views: Views
    live_slices: Mapping[int, LiveSlice]


class Execution:
    """Runs the instructions of one call over these values; `states` live longer than the call."""

    def __init__(
        self,
        context: MethodContext,
        values: list[RuntimeValue],
        states: Container[int],
        *,
        keep: bool,
        observer: HostObserver | None = None,
        check: ValueCheck | None = None,
    ) -> None:
        self._observer, self._check = observer, check
        self.values = values
        self.is_changed = False  # a delegate changed its states
        self._context = context
        self._where, self._record = context.where, context.record
        self._states = states
        self._keep = keep

    def run(self) -> None:
        """Run every instruction, then resolve outputs that are views of other tensors' memory."""
        instructions = self._record.instructions
        run_kernel = self._kernel if self._observer is None else self._timed_kernel
        counter = 0
        while counter < len(instructions):
            index, instruction = counter, instructions[counter]
            counter += 1
            if index in self._context.views:
                self._resolve_views(index)
            match instruction:
                case KernelCall():
                    run_kernel(instruction, index)
                case DelegateCall():
                    self._delegate(instruction, index)
                case MoveCall(source, target):
                    self._move(source, target, index)
                case JumpFalseCall(condition, destination):
                    if not self._is_true(self.values[condition], index):
                        counter = destination
                case FreeCall(value):
                    if value not in self._states:
                        self.values[value] = self._context.initial[value]
        if len(instructions) in self._context.views:
            self._resolve_views(len(instructions))

    def _resolve_views(self, index: int) -> None:
        """Set the tensors that an instruction reads but that are only views of other tensors' memory."""
        for view, source in self._context.views[index]:
            tensor, as_read = self._argument(source), self._record.values[view]
            as_written = self._record.values[source]
            if not isinstance(tensor, HostTensor):
                continue  # nothing wrote it: the reader raises the error
            assert isinstance(as_written, TensorRecord)
            assert isinstance(as_read, TensorRecord)
            if tensor.array.shape != as_written.sizes:  # a delegate's output may be smaller or larger
                what = f"{describe(tensor)} is in %{source}, which is {describe_record(as_written)}"
                raise GraphError(f"{self._where}, instruction {index}: {what}")
            array = reshaped(tensor.array, as_written, as_read)
            self.values[view] = HostTensor(array, tensor.dtype).protected()

    def _kernel(self, call: KernelCall, index: int) -> None:
        where = f"{self._where}, instruction {index} {self._record.operators[call.operator]}"
        operator = self._context.operators[call.operator]
        arguments = [self._argument(id) for id in call.args]
        if index in self._context.live_slices:
            self._check_slice(where, self._context.live_slices[index])
        for position, value in _guarded(where, operator.run, arguments).items():
            self._store(call.args[position], cast(RuntimeValue, value), where)

    def _check_slice(self, where: str, call: LiveSlice) -> None:
        """Raise a ShapeError if a slice between live integers leaves its dim, where PyTorch shortens it."""
        source, dim, *bounds = (self.values[id] for id in call)
        rank = source.array.ndim if isinstance(source, HostTensor) else 0
        if isinstance(source, HostTensor) and dim in range(-rank, rank):  # the operator checks its arguments
            try:
                check_live_slice(source.array.shape[cast(int, dim)], *cast(list[int], bounds))
            except RequirementError as error:
                raise ShapeError(f"{where}: {error}") from None

    def _timed_kernel(self, call: KernelCall, index: int) -> None:
        """Run a host operator when the GPU is idle, and tell the observer its time and that of its copies."""
        assert self._observer is not None
        for delegate in self._context.delegates:
            delegate.device.wait()
        marks = [perf_counter()]
        for kind in (GpuTensor, HostResult):  # a delegate's own reading ends with the latter
            for id in call.args:
                if isinstance(self.values[id], kind):
                    self._argument(id)
            marks.append(perf_counter())
        self._kernel(call, index)
        if any(isinstance(self._record.values[id], TensorRecord) for id in call.args):
            self._observer(COPIES, marks[1] - marks[0])
        self._observer(self._record.operators[call.operator], perf_counter() - marks[2])

    def _store(self, id: int, value: RuntimeValue, where: str) -> None:
        """Set a value; a GraphError if the program declares another type or shape."""
        record = self._record.values[id]
        if isinstance(record, IndexList) and isinstance(value, tuple):
            if len(value) != len(record.items):
                raise GraphError(f"{where} writes {len(value)} tensors to a list of {len(record.items)}")
            for item, member in zip(record.items, value, strict=True):
                self._store(item, member, where)
            return
        is_tensor = isinstance(record, TensorRecord) or isinstance(value, HostTensor)
        if is_tensor and not fits(value, record):
            declared = describe_record(record)
            raise GraphError(f"{where} wrote {describe(value)} to %{id}, which is {declared}")
        self.values[id] = value

    def _move(self, source: int, target: int, index: int) -> None:
        record, value = self._record.values[target], self.values[source]
        if (
            isinstance(record, TensorRecord)
            and not isinstance(value, UnsetTensor)
            and not fits(value, record)
        ):
            what = f"{describe(value)} is moved to %{target}, which is {describe_record(record)}"
            raise GraphError(f"{self._where}, instruction {index}: {what}")
        self.values[target] = value

    def output(self, id: int) -> RuntimeValue:
        """The value of an output, after all instructions have run."""
        if isinstance(self.values[id], UnsetTensor):
            raise GraphError(f"{self._where}: nothing wrote the output %{id}")
        return self.values[id]

    def _argument(self, id: int) -> RuntimeValue:
        """A value for the host: tensors are read back, lists of indices are resolved."""
        listed = self._record.values[id]
        if isinstance(listed, IndexList):
            return tuple(None if item < 0 else self._argument(item) for item in listed.items)
        value = self.values[id]
        if isinstance(value, (GpuTensor, HostResult)):
            self.values[id] = HostTensor(value.numpy(), value.dtype).protected()  # others may share it
        return self.values[id]

    def _is_true(self, condition: RuntimeValue, index: int) -> bool:
        if isinstance(condition, (GpuTensor, HostResult)):
            return bool(condition.numpy().all())
        if isinstance(condition, HostTensor):
            return bool(condition.array.all())
        if isinstance(condition, bool):
            return condition
        found = type(condition).__name__
        raise GraphError(f"{self._where}, instruction {index}: a jump on {found}, not a boolean")

    def _delegate(self, call: DelegateCall, index: int) -> None:
        where = f"{self._where}, instruction {index}"
        delegate = self._context.delegates[call.delegate]
        ports = zip(call.args, delegate.executable.inputs, strict=False)
        inputs = [self._delegate_input(self.values[id], port, index) for id, port in ports]
        written, check = written_by(call, self._context.delegates), self._check
        outputs = delegate.run(
            inputs, self._context.wanted[index, self._keep], check and partial(check, written)
        )
        self.is_changed |= bool(delegate.executable.states)
        for id, output in zip(written, outputs, strict=True):
            record = self._record.values[id]
            if isinstance(output, int):
                self.values[id] = _guarded(where, _as_declared, output, record)
            elif id in self._states and isinstance(output, (GpuTensor, HostResult)):
                self._store(id, HostTensor(output.numpy(), output.dtype), where)
            else:
                self.values[id] = output

    def _delegate_input(self, value: RuntimeValue, port: Port, index: int) -> Input:
        what = f"{type(value).__name__} as an input"
        if isinstance(value, (HostTensor, GpuTensor, HostResult)):
            if not isinstance(port, SymbolPort) or not value.dtype.is_float:
                return HostTensor(value.numpy(), value.dtype) if isinstance(value, HostResult) else value
            what = f"{describe(value)} as the integer {port}"
        elif isinstance(value, int):
            return value
        raise GraphError(f"{self._where}, instruction {index}: a delegate cannot take {what}")


def written_by(call: DelegateCall, delegates: Sequence[Delegate]) -> tuple[int, ...]:
    """The values that a delegate's call writes."""
    return call.args[len(delegates[call.delegate].executable.inputs) :]


def _as_declared(number: int, record: EValue) -> RuntimeValue:
    """A live integer as the type of the value that a delegate writes."""
    check_integer(number)
    if not isinstance(record, TensorRecord):
        return number
    return HostTensor(np.full(record.sizes, number, record.dtype.numpy), record.dtype)


def _guarded(where: str, function: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
    """Call an operator's function. Exceptions of NumPy, PyTorch and Python become errors of the program, so
    operators need not check every value that a file can hold."""
    try:
        return function(*arguments, **named)
    except HostError as error:
        raise HostError(f"{where}: {error}") from error
    except MemoryError as error:
        raise HostError(f"{where}: the host is out of memory") from error
    except Exception as error:  # arguments that the operator does not expect
        raise GraphError(f"{where}: {error}") from error
