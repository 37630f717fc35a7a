"""A program and inputs -> a report of one run: outputs, what ran where, how long it took."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pteron.dtypes import DType
from pteron.errors import InputError
from pteron.format import BundledTensor, BundledValue, DelegateCall, KernelCall
from pteron.runtime import Counters, Method, Program, ValueSpec
from pteron.tools.compare import as_float, compare
from pteron.tools.inputs import Input, LiveSize, fill_inputs

_VALUES_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Selection:
    """What to run: a method (by default `forward`, or the only one), with which inputs, how often again."""

    method: str | None = None
    inputs: Sequence[Input] = ()
    sizes: Sequence[LiveSize] = ()
    seed: int = 0
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class ValueReport:
    """An input or output: its type, its range, and its values where they are few."""

    type: str
    origin: str = ""
    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    not_a_number: int = 0
    values: Any = None


@dataclass(frozen=True, slots=True)
class RunReport:
    """One run. `counters` are those of the first call; times are in seconds."""

    program: str
    method: str
    device: str | None
    inputs: tuple[ValueReport, ...]
    outputs: tuple[ValueReport, ...]
    delegate_calls: int
    host_operators: Mapping[str, int]
    counters: Counters
    gpu_bytes: Mapping[str, int]
    load_seconds: float
    first_seconds: float
    repeat_seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class CaseReport:
    """A bundled test case: the largest difference of its outputs, and what is wrong, if anything."""

    method: str
    case: int
    largest_difference: float
    problem: str | None


def run(program: Program, selection: Selection) -> tuple[RunReport, tuple[Any, ...]]:
    """Call a method once, and `repeat` times more for the time it takes: a report, and the outputs."""
    name = method_name(program, selection.method)
    started = time.perf_counter()
    method = program[name]
    load_seconds = time.perf_counter() - started
    inputs = fill_inputs(method.inputs, selection.inputs, selection.sizes, selection.seed)
    values = [given.value for given in inputs]
    before = method.counters
    outputs, first_seconds = _timed(method, values)
    counters = _since(before, method.counters)
    repeats = tuple(_timed(method, values)[1] for _ in range(selection.repeat))
    record = next(record for record in program.file.methods if record.name == name)
    report = RunReport(
        program=Path(program.file.name).name,
        method=name,
        device=str(method.device.adapter) if method.device else None,
        inputs=tuple(
            _value_report(given.value, spec, given.origin)
            for given, spec in zip(inputs, method.inputs, strict=True)
        ),
        outputs=tuple(map(_value_report, outputs, method.outputs)),
        delegate_calls=sum(isinstance(call, DelegateCall) for call in record.instructions),
        host_operators=Counter(
            record.operators[call.operator] for call in record.instructions if isinstance(call, KernelCall)
        ),
        counters=counters,
        gpu_bytes=method.gpu_bytes,
        load_seconds=load_seconds,
        first_seconds=first_seconds,
        repeat_seconds=repeats,
    )
    return report, tuple(map(_array, outputs, method.outputs))


def check_bundle(program: Program, method: str | None = None) -> tuple[CaseReport, ...]:
    """Run the test cases in a bundled program, each on fresh state, and compare their outputs."""
    if program.bundle is None:
        raise InputError(f"{program.file.name} has no test cases; bundled programs (.bpte) have")
    suites = [suite for suite in program.bundle.suites if method in (None, suite.method)]
    if not any(suite.cases for suite in suites):
        raise InputError(f"{program.file.name} has no test cases{f' for {method!r}' if method else ''}")
    return tuple(
        _check_case(program[method_name(program, suite.method)], index, case.inputs, case.outputs)
        for suite in suites
        for index, case in enumerate(suite.cases)
    )


def save_outputs(outputs: Sequence[Any], folder: str) -> list[str]:
    """Write every output as output_N.npy; the paths."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        paths = [Path(folder) / f"output_{index}.npy" for index in range(len(outputs))]
        for path, output in zip(paths, outputs, strict=True):
            np.save(path, output)
    except OSError as error:
        raise InputError(f"the outputs cannot be written: {error}") from None
    return list(map(str, paths))


def method_name(program: Program, wanted: str | None) -> str:
    """The method asked for, or `forward`, or the only one."""
    name = wanted or ("forward" if "forward" in program or len(program) != 1 else program.methods[0])
    if name not in program:
        raise InputError(f"{program.file.name} has no method {name!r}; it has {', '.join(program.methods)}")
    return name


def _timed(method: Method, values: Sequence[Any]) -> tuple[tuple[Any, ...], float]:
    started = time.perf_counter()
    outputs = method(*values)
    return outputs, time.perf_counter() - started


def _since(before: Counters, after: Counters) -> Counters:
    return Counters(**{name: getattr(after, name) - getattr(before, name) for name in Counters.__slots__})


def _array(value: Any, spec: ValueSpec) -> Any:
    """An output as NumPy can hold and save it: bf16, which it lacks, as float32."""
    return as_float(value, spec.dtype).astype(np.float32) if spec.dtype is DType.BF16 else np.asarray(value)


def _value_report(value: Any, spec: ValueSpec, origin: str = "") -> ValueReport:
    if spec.dtype is None:
        return ValueReport(type(value).__name__, origin, values=value)
    array = np.asarray(value)
    numbers = as_float(array, spec.dtype)
    kind = f"{spec.dtype}{list(array.shape)}"
    few = _array(array, spec).tolist() if array.size <= _VALUES_SHOWN else None
    known = numbers[~np.isnan(numbers)]
    if known.size == 0:
        return ValueReport(kind, origin, not_a_number=numbers.size, values=few)
    return ValueReport(
        type=kind,
        origin=origin,
        minimum=float(known.min()),
        maximum=float(known.max()),
        mean=float(known.mean()),
        not_a_number=numbers.size - known.size,
        values=few,
    )


def _check_case(
    method: Method, index: int, inputs: Sequence[BundledValue], expected: Sequence[BundledValue]
) -> CaseReport:
    method.reset()
    outputs = method(*(value.array if isinstance(value, BundledTensor) else value for value in inputs))
    if len(outputs) != len(expected):
        problem = f"{len(outputs)} outputs instead of {len(expected)}"
        return CaseReport(method.name, index, np.inf, problem)
    largest, problems = 0.0, []
    for position, (wanted, found) in enumerate(zip(expected, outputs, strict=True)):
        dtype = wanted.dtype if isinstance(wanted, BundledTensor) else None
        difference = compare(wanted.array if isinstance(wanted, BundledTensor) else wanted, found, dtype)
        largest = max(largest, difference.largest)
        if difference.problem:
            problems.append(f"output {position}: {difference.problem}")
    return CaseReport(method.name, index, largest, "; ".join(problems) or None)
