"""The ExecuTorch program interpreter: runs a method's instructions over its values.

Tensors move between host and GPU only where an instruction needs them on the other side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import TypeVar, cast

import numpy as np

from pteron.errors import GraphError, HostError, StateLost
from pteron.format import (
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
from pteron.graph import Shape
from pteron.plan import SymbolPort, TensorPort
from pteron.plan.executable import Port
from pteron.runtime.checks import describe_record
from pteron.runtime.delegate import Delegate
from pteron.runtime.host_operator import HostOperator
from pteron.runtime.host_values import HostTensor, RuntimeValue, Unset, describe, fits, shape_fits
from pteron.runtime.limits import Budget, Limits, check_integer
from pteron.runtime.outputs import Wanted
from pteron.runtime.shared_memory import reshaped, shared_memory
from pteron.runtime.staging import Input
from pteron.runtime.states import initial_states, initial_value
from pteron.runtime.tensors import GpuTensor, HostResult
from pteron.runtime.turn import Turn

_DELEGATE_STEPS = 100  # what a delegate's call counts for, as it takes about as long as so many instructions

_A = TypeVar("_A")
_T = TypeVar("_T")


class Interpreter:
    """One method's values and the instructions that change them."""

    def __init__(
        self,
        where: str,
        record: MethodRecord,
        operators: Sequence[HostOperator],
        delegates: Sequence[Delegate],
        turn: Turn,
    ) -> None:
        self._where = where
        self._record = record
        self._operators = operators
        self._delegates = delegates
        self._limits = Limits.chosen()
        self._turn = turn
        self._left_behind: dict[int, HostTensor] | None = None  # states of a call that is not settled
        self._is_changed = False  # whether a delegate has changed its states in this call
        self._lost = False  # whether a call failed after that
        self._on_gpu = self._gpu_values()
        self._initial = [initial_value(value) for value in record.values]
        self._states = self._initial_states()
        self._wanted_of = {
            (index, keep): [self._wanted(id, keep) for id in self._written_by(instruction)]
            for index, instruction in enumerate(record.instructions)
            if isinstance(instruction, DelegateCall)
            for keep in (False, True)
        }
        executables = [delegate.executable for delegate in delegates]
        self._views = shared_memory(record, operators, executables)
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
                return list(self._delegates[0].run(cast(Sequence[Input], inputs), self._wanted_of[0, keep]))
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
        self._is_changed = False
        values = list(self._initial)
        for id, state in self._states.items():
            values[id] = state
        for id, value in zip(self._record.inputs, inputs, strict=True):
            values[id] = value.protected() if isinstance(value, HostTensor) else value
        try:
            self._run(values, keep)
            outputs = [self._output(id, values) for id in self._record.outputs]
            states = {id: self._left(values[id], state) for id, state in self._states.items()}
        except BaseException:
            self._lost = self._is_changed
            raise
        self._left_behind = states
        return outputs

    def _run(self, values: list[RuntimeValue], keep: bool) -> None:
        instructions, budget = self._record.instructions, Budget(self._where, self._limits)
        counter = 0
        while counter < len(instructions):
            index, instruction = counter, instructions[counter]
            counter += 1
            budget.step()
            if index in self._views:
                self._look(index, values, budget)
            match instruction:
                case KernelCall():
                    self._kernel(instruction, index, values, budget)
                case DelegateCall():
                    budget.step(_DELEGATE_STEPS)
                    self._delegate(instruction, index, values, keep, budget)
                case MoveCall(source, target):
                    self._move(source, target, index, values)
                    budget.share(source, target)
                case JumpFalseCall(condition, destination):
                    if not self._is_true(values[condition], index):
                        counter = destination
                    if counter <= index:
                        budget.jump_back()
                case FreeCall(value):
                    if value not in self._states:
                        values[value] = self._initial[value]
                        budget.free(value)
        if len(instructions) in self._views:
            self._look(len(instructions), values, budget)

    def _look(self, index: int, values: list[RuntimeValue], budget: Budget) -> None:
        """Let the tensors that an instruction finds in memory of others be what was written there."""
        for view, source in self._views[index]:
            tensor, as_read = self._argument(source, values, budget), self._record.values[view]
            as_written = self._record.values[source]
            if not isinstance(tensor, HostTensor):
                continue  # nothing wrote it: who reads it will say so
            assert isinstance(as_written, TensorRecord)
            assert isinstance(as_read, TensorRecord)
            array = reshaped(tensor.array, as_written, as_read)
            if np.may_share_memory(array, tensor.array):
                budget.share(source, view)
            else:
                budget.hold(self._where, view, array.nbytes)
            values[view] = HostTensor(array, tensor.dtype).protected()

    def _left(self, value: RuntimeValue, state: HostTensor) -> HostTensor:
        """What a call leaves to the next in a state, in memory that nobody else has."""
        if value is state or not isinstance(value, HostTensor):
            return state
        owned = value if value.array.flags.writeable else HostTensor(value.array.copy(), value.dtype)
        return owned.protected()

    # Instructions -------------------------------------------------------------------------------

    def _kernel(self, call: KernelCall, index: int, values: list[RuntimeValue], budget: Budget) -> None:
        where = f"{self._where}, instruction {index} {self._record.operators[call.operator]}"
        operator = self._operators[call.operator]
        arguments = [self._argument(id, values, budget) for id in call.args]
        forecast = _guarded(where, operator.foresee, arguments)
        for position, shapes in forecast.shapes.items():
            self._expect(call.args[position], shapes, where, budget)
        budget.spend(where, forecast.work, forecast.scratch)
        for position, value in _guarded(where, operator.run, arguments).items():
            if forecast.is_view:
                budget.share(call.args[0], call.args[position])
            elif position not in forecast.shapes and isinstance(value, HostTensor):
                budget.hold(where, call.args[position], value.array.nbytes)
            self._store(call.args[position], cast(RuntimeValue, value), values, where)

    def _expect(self, id: int, shape: Shape | list[Shape], where: str, budget: Budget) -> None:
        """Refuse what an operator is about to write to a value that the program declares otherwise."""
        record = self._record.values[id]
        if isinstance(record, IndexList) and isinstance(shape, list):
            if len(shape) != len(record.items):
                raise GraphError(f"{where} writes {len(shape)} tensors to a list of {len(record.items)}")
            for item, of_item in zip(record.items, shape, strict=True):
                self._expect(item, of_item, where, budget)
            return
        if not isinstance(record, TensorRecord) or isinstance(shape, list) or not shape_fits(shape, record):
            dtype = record.dtype if isinstance(record, TensorRecord) else ""
            raise GraphError(
                f"{where} writes a tensor {dtype}{list(shape)} to %{id}, which is {describe_record(record)}"
            )
        budget.hold(where, id, prod(shape) * record.dtype.itemsize)

    def _store(self, id: int, value: RuntimeValue, values: list[RuntimeValue], where: str) -> None:
        """Let a value be what was computed for it, if that is what the program declares it to be."""
        record = self._record.values[id]
        if isinstance(record, IndexList) and isinstance(value, tuple):
            for item, member in zip(record.items, value, strict=False):
                self._store(item, member, values, where)
            return
        is_tensor = isinstance(record, TensorRecord) or isinstance(value, HostTensor)
        if is_tensor and not fits(value, record):
            declared = describe_record(record)
            raise GraphError(f"{where} wrote {describe(value)} to %{id}, which is {declared}")
        values[id] = value

    def _move(self, source: int, target: int, index: int, values: list[RuntimeValue]) -> None:
        record, value = self._record.values[target], values[source]
        if isinstance(record, TensorRecord) and not isinstance(value, Unset) and not fits(value, record):
            what = f"{describe(value)} is moved to %{target}, which is {describe_record(record)}"
            raise GraphError(f"{self._where}, instruction {index}: {what}")
        values[target] = value

    def _output(self, id: int, values: list[RuntimeValue]) -> RuntimeValue:
        if isinstance(values[id], Unset):
            raise GraphError(f"{self._where}: nothing wrote the output %{id}")
        return values[id]

    def _argument(self, id: int, values: list[RuntimeValue], budget: Budget) -> RuntimeValue:
        """A value for the host: tensors fetched, lists of indices followed."""
        listed = self._record.values[id]
        if isinstance(listed, IndexList):
            budget.step(len(listed.items))
            return tuple(None if item < 0 else self._argument(item, values, budget) for item in listed.items)
        value = values[id]
        if isinstance(value, (GpuTensor, HostResult)):
            budget.hold(self._where, id, prod(value.shape) * value.dtype.itemsize)
            values[id] = HostTensor(value.numpy(), value.dtype).protected()  # others may hold it too
        return values[id]

    def _is_true(self, condition: RuntimeValue, index: int) -> bool:
        if isinstance(condition, (GpuTensor, HostResult)):
            return bool(condition.numpy().all())
        if isinstance(condition, HostTensor):
            return bool(condition.array.all())
        if isinstance(condition, bool):
            return condition
        found = type(condition).__name__
        raise GraphError(f"{self._where}, instruction {index}: a jump on {found}, not a boolean")

    def _delegate(
        self, call: DelegateCall, index: int, values: list[RuntimeValue], keep: bool, budget: Budget
    ) -> None:
        where = f"{self._where}, instruction {index}"
        delegate = self._delegates[call.delegate]
        ports = zip(call.args, delegate.executable.inputs, strict=False)
        inputs = [self._delegate_input(values[id], port, index) for id, port in ports]
        targets = self._written_by(call)
        wanted = self._wanted_of[index, keep]
        outputs = delegate.run(inputs, wanted)
        self._is_changed |= bool(delegate.executable.states)
        for id, output in zip(targets, outputs, strict=True):
            record = self._record.values[id]
            if isinstance(output, HostResult):
                budget.hold(where, id, prod(output.shape) * output.dtype.itemsize)
            if isinstance(output, int):
                values[id] = _guarded(where, partial(_as_declared, output), record)
            elif id in self._states and isinstance(output, (GpuTensor, HostResult)):
                self._store(id, HostTensor(output.numpy(), output.dtype), values, where)
            else:
                values[id] = output

    def _delegate_input(self, value: RuntimeValue, port: Port, index: int) -> Input:
        what = f"{type(value).__name__} as an input"
        if isinstance(value, (HostTensor, GpuTensor, HostResult)):
            if not isinstance(port, SymbolPort) or not value.dtype.is_float:
                return HostTensor(value.numpy(), value.dtype) if isinstance(value, HostResult) else value
            what = f"{describe(value)} as the integer {port}"
        elif isinstance(value, int):
            return value
        raise GraphError(f"{self._where}, instruction {index}: a delegate cannot take {what}")

    def _written_by(self, call: DelegateCall) -> tuple[int, ...]:
        return call.args[len(self._delegates[call.delegate].executable.inputs) :]

    def _wanted(self, id: int, keep: bool) -> Wanted | None:
        record = self._record.values[id]
        if not isinstance(record, TensorRecord):
            return None
        on_gpu = id in self._on_gpu or (keep and id in self._record.outputs)
        return Wanted(record.dtype, on_gpu and id not in self._states)

    # Values -------------------------------------------------------------------------------------

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


def _as_declared(number: int, record: EValue) -> RuntimeValue:
    """A live integer as the value that a delegate writes it to."""
    check_integer(number)
    if not isinstance(record, TensorRecord):
        return number
    return HostTensor(np.full(record.sizes, number, record.dtype.numpy), record.dtype)


def _guarded(where: str, function: Callable[[_A], _T], arguments: _A) -> _T:
    """What an operator's function gives. This is where errors of NumPy, PyTorch and Python become the
    program's: behind it, operators need not expect every value that a file can hold."""
    try:
        return function(arguments)
    except HostError as error:
        raise HostError(f"{where}: {error}") from error
    except MemoryError as error:  # within the limits of a call, and yet more than there is
        raise HostError(f"{where}: the host has no memory left for it") from error
    except Exception as error:  # given what the program's own types rule out
        raise GraphError(f"{where}: {error}") from error
