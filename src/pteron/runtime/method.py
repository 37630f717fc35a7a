"""A method: an entry point of a program, called with inputs and giving outputs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from pteron.errors import DeviceError, DtypeError, InputError, ShapeError
from pteron.format import DelegateCall, MethodRecord, TensorRecord
from pteron.gpu import Device, States
from pteron.host.tensors import GpuTensor, extremes, from_torch, numbers
from pteron.host.values import HostTensor, RuntimeValue, shape_fits
from pteron.plan import SymbolPort
from pteron.runtime.checks import read_by
from pteron.runtime.conversion import as_tensor, hint, is_torch, result
from pteron.runtime.delegate import Delegate
from pteron.runtime.integer_ranges import Range, check_ranges
from pteron.runtime.interpreter import Interpreter
from pteron.runtime.loaded_method import LoadedMethod
from pteron.runtime.names import arranged, input_names
from pteron.runtime.notebook import spec_rows, table
from pteron.runtime.session import Counters
from pteron.runtime.specs import ValueSpec

_ARRAYS = {np.ndarray}


class Method:
    """`method(*inputs)` runs it. NumPy in, NumPy out; torch in, torch out; scalars are taken as they are.

    With `on_gpu=True` outputs that a delegate made stay on the GPU, as GpuTensors that further calls take.
    Calls from several threads are served one after the other.
    """

    def __init__(self, code: LoadedMethod) -> None:
        self._code = code
        self._where = code.where
        self._record = code.record
        self._closed = False
        self._worker: tuple[int, ThreadPoolExecutor] | None = None  # of run_async, in this process
        self._delegates: list[Delegate] = []
        with code.lock:
            try:
                for session in code.sessions:
                    self._delegates.append(Delegate(session))
                self._interpreter = Interpreter(
                    code.where, code.record, code.operators, self._delegates, code.turn
                )
            except BaseException:
                self.close()
                raise
        self._integers = self._integers_of_delegates()

    @property
    def _states(self) -> list[States]:
        return [delegate.states for delegate in self._delegates]

    @property
    def name(self) -> str:
        return self._record.name

    @property
    def record(self) -> MethodRecord:
        """What the file says of it."""
        return self._record

    @property
    def device(self) -> Device | None:
        return self._code.device

    def __repr__(self) -> str:
        inputs = ", ".join(f"{spec.name}: {spec}" for spec in self.inputs)
        outputs = ", ".join(map(str, self.outputs))
        return f"<pteron.Method {self.name}({inputs}) -> ({outputs})>"

    def _repr_html_(self) -> str:
        rows = spec_rows(self.inputs, self.outputs)
        return table(f"{self._where}", ("", "name", "type"), rows)

    @property
    def inputs(self) -> tuple[ValueSpec, ...]:
        """What the method takes: element types, maximum shapes, which dims are dynamic."""
        return self._code.specs[0]

    @property
    def outputs(self) -> tuple[ValueSpec, ...]:
        """What the method gives."""
        return self._code.specs[1]

    @property
    def delegates(self) -> tuple[Delegate, ...]:
        """The graphs that it runs on the GPU, as this sequence of calls sees them."""
        return tuple(self._delegates)

    @property
    def sole_delegate(self) -> Delegate | None:
        """The delegate that is the whole method, where there is one: loops may drive it directly."""
        alone = len(self._record.instructions) == 1 and len(self._delegates) == 1
        return self._delegates[0] if alone else None

    @property
    def counters(self) -> Counters:
        """How often it was called, planned and so on, up to now."""
        return replace(self._code.counters)

    @property
    def gpu_bytes(self) -> dict[str, int]:
        """GPU memory by kind: weights, activations and scratch, which all sequences share, and states."""
        total = {"weights": 0, "states": 0, "activations": 0, "scratch": 0}
        for session, delegate in zip(self._code.sessions, self._delegates, strict=True):
            total["states"] += delegate.state_bytes
            for kind, size in session.bytes_by_kind.items():
                total[kind] += size
        return total

    @property
    def state_bytes(self) -> int:
        """GPU memory of the states that another sequence of calls to it would have."""
        sessions = self._code.sessions
        return sum(States.bytes_of(session.device, session.executable) for session in sessions)

    def __call__(self, /, *inputs: object, on_gpu: bool = False, **named: object) -> tuple[Any, ...]:
        """Run the method; the outputs are a tuple, whatever their number. Inputs are given by position, by
        name, or as a dict of names; `inputs` lists the names."""
        outputs: tuple[Any, ...] | None = None
        if named or (len(inputs) == 1 and isinstance(inputs[0], dict)):
            inputs = self._arranged(inputs, named)
        try:
            with self._code.lock:
                if self._closed or not (self._code.device is None or self._code.device.is_open):
                    self._check_open()
                for states in self._states:
                    states.check_settled()
                outputs = self._call(inputs, on_gpu)
                for states in self._states:
                    states.is_settled = True
                self._interpreter.settle()
                return outputs
        except BaseException:
            if outputs is not None:  # an interruption at the very end: nobody sees what the call gave
                for states in self._states:
                    states.unsettle()
                self._interpreter.unsettle()
            raise

    async def run_async(self, /, *inputs: object, on_gpu: bool = False, **named: object) -> tuple[Any, ...]:
        """As calling it, without keeping the event loop waiting; several are served one after the other.

        One that is cancelled before its turn is not run. One that has begun ends all the same, unseen.
        """
        import asyncio  # here: it takes longer than all of this module

        if self._worker is None or self._worker[0] != os.getpid():  # a forked child has no threads
            self._worker = os.getpid(), ThreadPoolExecutor(1, f"pteron {self.name}")
        call = partial(self, *inputs, on_gpu=on_gpu, **named)
        return await asyncio.get_running_loop().run_in_executor(self._worker[1], call)

    def reset(self) -> None:
        """Bring caches and mutated buffers back to their initial values."""
        with self._code.lock:
            self._check_open()
            for states in self._states:  # all of them, whichever the reset comes to
                states.unsettle()
            self._interpreter.reset()

    def settle(self) -> None:
        """Go on with the states as they are, after a call that failed: for whoever keeps account of what it
        may have changed, as of a cache from some position on, and writes that again before it is read."""
        with self._code.lock:
            for states in self._states:
                states.is_settled = True

    def close(self) -> None:
        """Free the GPU memory of this sequence's states."""
        with self._code.lock:
            self._closed = True
            if self._worker is not None:
                self._worker[1].shutdown(wait=False)
            for delegate in self._delegates:
                delegate.close()

    def _check_open(self) -> None:
        if self._closed:
            raise DeviceError(f"{self._where}: the program is closed")
        if self.device is not None:
            self.device.check_open()

    def _call(self, inputs: Sequence[object], on_gpu: bool) -> tuple[Any, ...]:
        ids = self._record.inputs
        if len(inputs) != len(ids):
            arranged(self._where, self._names, inputs, {})  # which says what is wrong
        given = [self._input(position, value) for position, value in enumerate(inputs)]
        self._code.counters.calls += 1
        if self._code.checked:
            self._check_ranges(given)
        try:
            outputs = self._interpreter.run(given, keep=on_gpu)
        except ShapeError as error:
            self._explain(given, error)
            raise
        torch_out = {*map(type, inputs)} != _ARRAYS and any(map(is_torch, inputs))
        return tuple([result(value, torch_out, on_gpu) for value in outputs])

    # Inputs -------------------------------------------------------------------------------------

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return input_names(self._record)

    def _arranged(self, inputs: Sequence[object], named: Mapping[str, object]) -> tuple[object, ...]:
        """Inputs in their order, of some that are given by name."""
        first = inputs[0] if len(inputs) == 1 else None
        if isinstance(first, dict):
            for name in first.keys() & named.keys():
                raise InputError(f"{self._where}: input {name!r} is given twice")
            inputs, named = (), {**first, **named}
        return tuple(arranged(self._where, self._names, inputs, named))

    def _check_ranges(self, given: Sequence[RuntimeValue]) -> None:
        """Refuse inputs of which a delegate may make integers beyond 32 bits."""
        held = dict(zip(self._record.inputs, given, strict=True))
        for call in self._record.instructions:
            if isinstance(call, DelegateCall):
                graph = self._code.checked[call.delegate]
                ranges: dict[int, Range] = {}
                for id, port in zip(call.args, graph.inputs, strict=False):
                    value = held.get(id)
                    if isinstance(value, HostTensor) and not value.dtype.is_float and value.array.size:
                        ranges[port.id] = extremes(value.array)
                check_ranges(graph, ranges)

    def _explain(self, given: Sequence[RuntimeValue], error: ShapeError) -> None:
        """Name the dim that cannot be what it is, where a shape that the file admits led to an error."""
        for position, (spec, value) in enumerate(zip(self.inputs, given, strict=True)):
            if isinstance(value, (HostTensor, GpuTensor)):
                shape = value.array.shape if isinstance(value, HostTensor) else value.shape
                problem = spec.misfit(shape)
                if problem:
                    where = f"{self._where}, {self._place(position)}"
                    raise ShapeError(f"{where}: {problem}. {error}") from error

    def _place(self, position: int) -> str:
        """An input as messages name it."""
        name = self._names[position]
        return f"input {position}" if name == f"input_{position}" else f"input {position} ({name})"

    def _input(self, position: int, value: object) -> RuntimeValue:
        id = self._record.inputs[position]
        expected = self._record.values[id]
        if (
            type(value) is np.ndarray
            and isinstance(expected, TensorRecord)
            and value.dtype == expected.dtype.numpy
            and value.shape == expected.sizes
        ):
            return HostTensor(value, expected.dtype)  # as it is declared, without a further look
        try:
            if isinstance(expected, TensorRecord):
                return self._tensor_input(position, expected, value)
            return self._scalar_input(id, expected, value)
        except InputError as error:
            raise type(error)(f"{self._where}, {self._place(position)}: {error}") from None

    def _tensor_input(self, position: int, expected: TensorRecord, value: object) -> RuntimeValue:
        tensor = as_tensor(expected, value)
        if isinstance(tensor, GpuTensor) and tensor.device is not self.device:
            raise InputError(f"{tensor!r} is on another device than the program")
        if tensor.dtype is not expected.dtype:
            raise DtypeError(f"expected {expected.dtype}, got {tensor.dtype}{hint(expected.dtype, value)}")
        shape = tensor.shape if isinstance(tensor, GpuTensor) else tensor.array.shape
        if not shape_fits(shape, expected):
            raise ShapeError(self.inputs[position].misfit(shape) or f"got {list(shape)}")
        return tensor

    def _scalar_input(self, id: int, expected: object, value: Any) -> RuntimeValue:
        if is_torch(value):
            value = numbers(*from_torch(value))
        if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0:
            value = value.item()
        if not isinstance(value, (int, float, bool, str, type(None))):
            raise DtypeError(f"expected a scalar, got {type(value).__name__}")
        if id in self._integers and not isinstance(value, int):
            raise DtypeError(f"expected an integer, got {value!r}")
        is_same = value == expected or (value != value and expected != expected)  # NaN is the same as NaN
        if expected is not None and not is_same and not self._is_read(id):
            raise InputError(f"the program was exported for the value {expected!r}, got {value!r}")
        return value

    def _is_read(self, id: int) -> bool:
        """Whether any instruction looks at a value; if none does, it was built into the program."""
        return any(id in read_by(instruction) for instruction in self._record.instructions)

    def _integers_of_delegates(self) -> set[int]:
        """The values that delegates take as live integers."""
        return {
            id
            for call in self._record.instructions
            if isinstance(call, DelegateCall)
            for id, value in zip(call.args, self._delegates[call.delegate].executable.inputs, strict=False)
            if isinstance(value, SymbolPort)
        }
