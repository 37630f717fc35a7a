"""A method: an entry point of a program. In: inputs of a call. Out: a tuple of outputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from pteron.errors import DeviceError, DtypeError, InputError, ShapeError
from pteron.format.records import DelegateCall, MethodRecord, TensorRecord
from pteron.gpu import Device, States
from pteron.graph import Shape
from pteron.host.tensors import GpuTensor, from_torch, widen_bf16
from pteron.host.values import HostTensor, RuntimeValue, shape_fits
from pteron.plan import SymbolPort
from pteron.runtime.checks import read_by
from pteron.runtime.conversion import as_tensor, hint, is_torch, settled
from pteron.runtime.delegate import Delegate
from pteron.runtime.execution import HostObserver
from pteron.runtime.interpreter import Interpreter
from pteron.runtime.loaded_method import LoadedMethod, NotCopyable
from pteron.runtime.pending import InFlight, Pending, in_order
from pteron.runtime.session import Counters
from pteron.runtime.specs import ValueSpec, arranged, input_names, misfit_between, spec_rows, table
from pteron.runtime.targets import Targets, read

_ARRAYS = {np.ndarray}


def _shape(value: RuntimeValue) -> Shape | None:
    if isinstance(value, HostTensor):
        return value.array.shape
    return value.shape if isinstance(value, GpuTensor) else None


def _is_size(value: object) -> bool:
    return isinstance(value, (int, np.integer))


class Method(NotCopyable):
    """A method of a program; `method(*inputs)` runs it and returns a tuple.

    Outputs are NumPy arrays, or PyTorch tensors if an input is one. Scalars are Python numbers. With
    `on_gpu=True`, outputs of delegates stay on the GPU as GpuTensors, which other calls accept as inputs.
    Calls from several threads run one after the other.
    """

    def __init__(self, loaded: LoadedMethod) -> None:
        self._loaded = loaded
        self._where = loaded.where
        self._record = loaded.record
        self._closed = False
        self._worker: ThreadPoolExecutor | None = None  # of run_async
        self._in_flight = InFlight()
        self._delegates: list[Delegate] = []
        with loaded.lock:
            try:
                for session in loaded.sessions:
                    self._delegates.append(Delegate(session))
                self._interpreter = Interpreter(
                    loaded.where, loaded.record, loaded.operators, self._delegates, loaded.trace
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
        """The method's record in the file."""
        return self._record

    @property
    def device(self) -> Device | None:
        return self._loaded.device

    def __repr__(self) -> str:
        inputs = ", ".join(f"{spec.name}: {spec}" for spec in self.inputs)
        outputs = ", ".join(f"{spec.name}: {spec}" if spec.name else str(spec) for spec in self.outputs)
        return f"<pteron.Method {self.name}({inputs}) -> ({outputs})>"

    def _repr_html_(self) -> str:
        rows = spec_rows(self.inputs, self.outputs)
        return table(f"{self._where}", ("", "name", "type"), rows)

    @property
    def inputs(self) -> tuple[ValueSpec, ...]:
        """The inputs: element types, maximum shapes, which dims are dynamic."""
        return self._loaded.specs[0]

    @property
    def outputs(self) -> tuple[ValueSpec, ...]:
        """The outputs."""
        return self._loaded.specs[1]

    @property
    def delegates(self) -> tuple[Delegate, ...]:
        """The delegates: graphs that run on the GPU, with the states of this sequence."""
        return tuple(self._delegates)

    @property
    def sole_delegate(self) -> Delegate | None:
        """The delegate, if the method consists of nothing else. Decode loops run it directly."""
        alone = len(self._record.instructions) == 1 and len(self._delegates) == 1
        return self._delegates[0] if alone else None

    @property
    def counters(self) -> Counters:
        """Calls, plans, dispatches and bytes so far."""
        return replace(self._loaded.counters)

    @property
    def gpu_bytes(self) -> dict[str, int]:
        """GPU memory in bytes by kind. Sequences share weights, activations and scratch memory; states are of
        this sequence."""
        total = {"weights": 0, "states": 0, "activations": 0, "scratch": 0}
        for session, delegate in zip(self._loaded.sessions, self._delegates, strict=True):
            total["states"] += delegate.states.bytes
            for kind, size in session.bytes_by_kind.items():
                total[kind] += size
        return total

    @property
    def state_bytes(self) -> int:
        """GPU memory of the states of one more sequence."""
        sessions = self._loaded.sessions
        return sum(States.bytes_of(session.device, session.executable) for session in sessions)

    def __call__(
        self, /, *inputs: object, on_gpu: bool = False, out: Any = None, **named: object
    ) -> tuple[Any, ...]:
        """Run the method and return a tuple of outputs. Pass inputs by position, by name, or as one dict from
        name to value; `inputs` lists the names. `out` is a list with an item for each output: an array or
        PyTorch tensor to fill and return, or None."""
        if named or (len(inputs) == 1 and isinstance(inputs[0], dict)):
            inputs = self._arranged(inputs, named)
        targets = self._targets(out, on_gpu)
        with self._loaded.lock:
            started = self._start(inputs, bool(on_gpu), targets)
            outputs = read(*started, bool(on_gpu), targets)
            self._commit()
            return outputs

    def submit(self, /, *inputs: object, out: Any = None, **named: object) -> Pending[tuple[Any, ...]]:
        """Start a call, with arguments as in a call, and return without waiting for the GPU. `result()` of
        what it returns, or `await`, waits for this call and gives its outputs.

        The inputs may be changed as soon as this returns. Arrays in `out` are filled by `result()`. Calls run
        in the order of their submission. Four can be in flight; a further one first waits until the oldest of
        them has finished. Operators on the host run before this returns, and so does what they wait for.
        """
        if named or (len(inputs) == 1 and isinstance(inputs[0], dict)):
            inputs = self._arranged(inputs, named)
        targets = self._targets(out)
        self._in_flight.wait_for_room(self._loaded.lock, self.device)
        with self._loaded.lock:
            started, torch_out = self._start(inputs, False, targets)
            values = list(map(settled, started))
            self._commit()
            number = self._in_flight.add(values)

        def outputs() -> tuple[Any, ...]:
            self._check_open()
            found = read(values, torch_out, False, targets)
            self._in_flight.remove(number)
            return found

        return Pending(outputs)

    def map(self, batches: Iterable[Any], *, out: Any = None) -> Iterator[tuple[Any, ...]]:
        """The outputs of a call for each batch, in order, with two calls in flight while the caller uses
        outputs: a batch is taken two results before its own. A batch is a tuple with an item for every input,
        a dict by name, or the item of a method of one input. Arrays in `out` are filled at every step.

        Closing the generator drops what is in flight.
        """
        calls = (batch if isinstance(batch, tuple) else (batch,) for batch in batches)
        return in_order(lambda call: self.submit(*call, out=out), calls)

    async def run_async(
        self, /, *inputs: object, on_gpu: bool = False, out: Any = None, **named: object
    ) -> tuple[Any, ...]:
        """Run the method without blocking the event loop. Several calls run one after the other, as those of
        `submit` do.

        A call that is cancelled before it starts does not run. A running call that is cancelled finishes, and
        its outputs are dropped.
        """
        import asyncio  # here: a slow import

        self._check_open()
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, f"pteron {self.name}")
        run = asyncio.get_running_loop().run_in_executor
        if on_gpu:
            return await run(self._worker, partial(self, *inputs, on_gpu=True, out=out, **named))
        return await (await run(self._worker, partial(self.submit, *inputs, out=out, **named)))

    def prepare(self, calls: Iterable[Any], progress: Callable[[str], None] = lambda line: None) -> None:
        """Plan and compile ahead of the first call, which then takes as long as later ones: run calls on
        zeros, with states of their own.

        Each call is a tuple with an item for every input, or a dict by name; for a method of one input it may
        be the item. A tuple of numbers is the shape of a tensor, other items are as in calls:
        `prepare([(1, 3, 96, 96), (1, 3, 64, 80)], progress=print)`.
        """
        self._check_open()
        calls, other = list(calls), Method(self._loaded)
        try:
            for number, call in enumerate(calls, 1):
                before, started = self.counters, time.perf_counter()
                other(*self._zeros(call))
                plans, kernels = self.counters.plans - before.plans, self.counters.kernels - before.kernels
                progress(
                    f"prepared {number} of {len(calls)}, {call}: {plans} new plans, {kernels} new kernels, "
                    f"{time.perf_counter() - started:.1f} s"
                )
        finally:
            other.close()

    def reset(self) -> None:
        """Set caches and mutated buffers to their initial values."""
        with self._loaded.lock:
            self._check_open()
            for states in self._states:  # all of them, even if the reset fails
                states.invalidate()
            self._interpreter.reset()

    def accept_states(self) -> None:
        """Continue with the current states after a failed call. Only for callers that know which part the
        call may have changed (a KV cache from some position on) and write that part before it is read."""
        with self._loaded.lock:
            for states in self._states:
                states.is_valid = True

    def close(self) -> None:
        """Free the GPU memory of this sequence's states."""
        with self._loaded.lock:
            self._closed = True
            worker, self._worker = self._worker, None
            if worker is not None:
                worker.shutdown(wait=False)
            for delegate in self._delegates:
                delegate.close()

    def observe_host(self, observer: HostObserver | None) -> None:
        """Let an observer get the time of each host operator; None ends it."""
        self._interpreter.observer = observer

    def _check_open(self) -> None:
        if self._closed:
            raise DeviceError(f"{self._where}: the program is closed")
        if self.device is not None:
            self.device.check_open()

    # Calls --------------------------------------------------------------------------------------

    def _start(
        self, inputs: Sequence[object], on_gpu: bool, targets: Targets | None
    ) -> tuple[list[RuntimeValue], bool]:
        """Run a call, up to reading its outputs and committing its states. Returns the outputs, and whether
        they are for PyTorch."""
        if self._closed or not (self._loaded.device is None or self._loaded.device.is_open):
            self._check_open()
        for states in self._states:
            states.check_valid()
        ids = self._record.inputs
        if len(inputs) != len(ids):
            arranged(self._where, self._names, inputs, {})  # raises the error
        given = [self._input(position, value) for position, value in enumerate(inputs)]
        self._loaded.counters.calls += 1
        try:
            values = self._interpreter.run(given, keep=on_gpu, targets=targets)
        except ShapeError as error:
            self._explain(given, error)
            raise
        return values, {*map(type, inputs)} != _ARRAYS and any(map(is_torch, inputs))

    def _commit(self) -> None:
        """Keep the states that the call has computed."""
        for states in self._states:
            states.is_valid = True
        self._interpreter.commit_states()

    def _targets(self, out: Any, on_gpu: bool = False) -> Targets | None:
        if out is None:
            return None
        if on_gpu:
            raise InputError(f"{self._where}: outputs cannot both stay on the GPU and fill arrays (out)")
        return Targets(self._where, self._record.outputs, self.outputs, out)

    # Inputs -------------------------------------------------------------------------------------

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return input_names(self._record)

    def _arranged(self, inputs: Sequence[object], named: Mapping[str, object]) -> tuple[object, ...]:
        """The inputs by position; some of them are given by name."""
        first = inputs[0] if len(inputs) == 1 else None
        if isinstance(first, dict):
            for name in first.keys() & named.keys():
                raise InputError(f"{self._where}: input {name!r} is given twice")
            inputs, named = (), {**first, **named}
        return tuple(arranged(self._where, self._names, inputs, named))

    def _zeros(self, call: Any) -> list[object]:
        """The inputs of a call, with zeros in place of shapes."""
        named = call if isinstance(call, dict) else {}
        is_item = len(self._names) == 1 and (not isinstance(call, tuple) or all(map(_is_size, call)))
        items = () if named else (call,) if is_item else call
        return [
            np.zeros(item, spec.dtype) if isinstance(item, tuple) else item
            for spec, item in zip(self.inputs, arranged(self._where, self._names, items, named), strict=True)
        ]

    def _explain(self, given: Sequence[RuntimeValue], error: ShapeError) -> None:
        """Raise an error that names the dim, if the file allows the shape of an input but the graph does
        not."""
        shapes = [_shape(value) for value in given]
        for position, (spec, shape) in enumerate(zip(self.inputs, shapes, strict=True)):
            problem = spec.misfit(shape) if shape is not None else None
            if problem:
                where = f"{self._where}, {self._place(position)}"
                raise ShapeError(f"{where}: {problem}. {error}") from error
        problem = misfit_between(self.inputs, shapes)
        if problem:
            raise ShapeError(f"{self._where}: {problem}. {error}") from error

    def _place(self, position: int) -> str:
        """The name of an input in messages."""
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
            return HostTensor(value, expected.dtype)  # hot path: as declared
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
        fits = shape_fits(shape, expected)
        # Ports have minima and static dims. A dim of size 0 is rarely meant, unless it is dynamic.
        if not fits or self._record.input_ports or (0 in shape and shape != expected.sizes):
            problem = self.inputs[position].misfit(shape)
            if problem or not fits:
                raise ShapeError(problem or f"got {list(shape)}")
        return tensor

    def _scalar_input(self, id: int, expected: object, value: Any) -> RuntimeValue:
        if is_torch(value):
            value = widen_bf16(*from_torch(value))
        if isinstance(value, (np.generic, np.ndarray, GpuTensor)) and value.shape == ():
            value = value.item()
        if not isinstance(value, (int, float, bool, str, type(None))):
            raise DtypeError(f"expected a scalar, got {type(value).__name__}")
        if id in self._integers and not isinstance(value, int):
            raise DtypeError(f"expected an integer, got {value!r}")
        is_same = value == expected or (value != value and expected != expected)  # NaN equals NaN here
        if expected is not None and not is_same and not self._is_read(id):
            raise InputError(f"the program was exported for the value {expected!r}, got {value!r}")
        return value

    def _is_read(self, id: int) -> bool:
        """Whether any instruction reads a value; otherwise it is a constant of the program."""
        return any(id in read_by(instruction) for instruction in self._record.instructions)

    def _integers_of_delegates(self) -> set[int]:
        """The values that delegates read as live integers."""
        return {
            id
            for call in self._record.instructions
            if isinstance(call, DelegateCall)
            for id, value in zip(call.args, self._delegates[call.delegate].executable.inputs, strict=False)
            if isinstance(value, SymbolPort)
        }
