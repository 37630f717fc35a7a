"""A program and inputs -> a report of one run: outputs, where operators ran, times; the report as lines."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pteron.dtypes import DType
from pteron.errors import InputError
from pteron.format.records import DelegateCall, KernelCall
from pteron.runtime import Counters, Method, Program, ValueSpec
from pteron.runtime.loaded_method import Precision
from pteron.tools import Progress, silent
from pteron.tools.inputs import as_float, fill_inputs
from pteron.tools.text import Line, columns, counted, human_bytes, human_time
from pteron.tools.workload import Selection, method_name

_VALUES_SHOWN = 8


@dataclass(frozen=True, slots=True)
class ValueReport:
    """An input or output: its type, its range, and its values if they are few."""

    type: str
    origin: str = ""
    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    not_a_number: int = 0
    values: Any = None


@dataclass(frozen=True, slots=True)
class RunReport:
    """One run. `counters` are those of the first call."""

    program: str
    method: str
    signature: str  # types of inputs and outputs, "≤" before dynamic dims
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


def run(
    program: Program, selection: Selection, repeat: int = 0, progress: Progress = silent
) -> tuple[RunReport, tuple[Any, ...]]:
    """Call a method once, then `repeat` times for timing; the report and the outputs."""
    name = method_name(program, selection.method)
    started = time.perf_counter()
    method = program[name]
    load_seconds = time.perf_counter() - started
    inputs = fill_inputs(method.inputs, selection.inputs, selection.sizes, selection.seed)
    values = [each.value for each in inputs]
    before = method.counters
    progress(f"calling {name}", 0, repeat)
    outputs, first_seconds = _timed(method, values)
    after = method.counters
    counters = Counters(**{name: getattr(after, name) - getattr(before, name) for name in Counters.__slots__})
    repeats = []
    for index in range(repeat):
        progress(f"calling {name}", index, repeat)
        repeats.append(_timed(method, values)[1])
    record = next(record for record in program.file.methods if record.name == name)
    taken, given = (", ".join(map(str, specs)) for specs in (method.inputs, method.outputs))
    report = RunReport(
        program=Path(program.file.name).name,
        method=name,
        signature=f"({taken}) -> ({given})",
        device=place_of(program) if method.device else None,
        inputs=tuple(
            _value_report(each.value, spec, each.origin)
            for each, spec in zip(inputs, method.inputs, strict=True)
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
        repeat_seconds=tuple(repeats),
    )
    return report, tuple(map(_array, outputs, method.outputs))


def place_of(program: Program) -> str:
    """Where a program runs: the adapter, and the precision if it is not the default."""
    precision, default, target = program.precision, Precision(), program.device.target
    place = str(program.device.adapter)
    if precision.digits != default.digits:
        place += f", {precision.digits} digits{' (no effect on CPUs)' if target.is_cpu else ''}"
    if precision.products != default.products:
        without = "" if target.has_matrices else " (no effect: no matrix cores)"
        place += f", {precision.products} products{without}"
    return place


def save_outputs(outputs: Sequence[Any], folder: str) -> list[str]:
    """Write every output as output_N.npy; returns the paths."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        paths = [Path(folder) / f"output_{index}.npy" for index in range(len(outputs))]
        for path, output in zip(paths, outputs, strict=True):
            np.save(path, output)
    except OSError as error:
        raise InputError(f"the outputs cannot be written: {error}") from None
    return list(map(str, paths))


def _timed(method: Method, values: Sequence[Any]) -> tuple[tuple[Any, ...], float]:
    started = time.perf_counter()
    outputs = method(*values)
    return outputs, time.perf_counter() - started


def _array(value: Any, spec: ValueSpec) -> Any:
    """An output for NumPy, which has no bf16: float32 instead."""
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


def run_lines(report: RunReport) -> Iterator[str]:
    """Inputs and outputs, then where operators ran, then times."""
    yield Line(f"{report.program}, {report.method}{report.signature}", "title")
    rows = [_value_row("input", index, value) for index, value in enumerate(report.inputs)]
    rows += [_value_row("output", index, value) for index, value in enumerate(report.outputs)]
    yield from columns(rows, indent=2)
    yield ""
    yield from columns([*_device_rows(report), *_time_rows(report)], indent=2)


def _value_row(what: str, index: int, value: ValueReport) -> list[str]:
    return [f"{what} {index}", value.type, _content(value), f"({value.origin})" if value.origin else ""]


def _content(value: ValueReport) -> str:
    if value.values is not None:
        return _values(value.values)
    if value.minimum is None or value.maximum is None or value.mean is None:
        return "only NaN" if value.not_a_number else "empty"
    text = f"min {value.minimum:.4g}  max {value.maximum:.4g}  mean {value.mean:.4g}"
    return f"{text}  NaN {value.not_a_number:,}" if value.not_a_number else text


def _values(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_values, value))}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _device_rows(report: RunReport) -> Iterator[list[str]]:
    if report.delegate_calls:
        yield ["on the GPU", report.device or ""]
        counters, dispatches = report.counters, counted(report.counters.dispatches, "dispatch", "dispatches")
        yield [
            "",
            f"{counted(report.delegate_calls, 'delegate call')}: {dispatches}, "
            f"{counted(counters.plans, 'new plan')}, {human_bytes(counters.bytes_uploaded)} up, "
            f"{human_bytes(counters.bytes_read)} down",
        ]
        memory = [f"{human_bytes(size)} {kind}" for kind, size in report.gpu_bytes.items() if size]
        yield ["", f"memory: {', '.join(memory)}"]
    operators = [f"{count}x {name}" for name, count in report.host_operators.items()]
    yield ["on the host", ", ".join(operators) or "nothing"]


def _time_rows(report: RunReport) -> Iterator[list[str]]:
    yield ["load", human_time(report.load_seconds)]
    yield ["first call", human_time(report.first_seconds)]
    if report.repeat_seconds:
        median, best = statistics.median(report.repeat_seconds), min(report.repeat_seconds)
        repeats = counted(len(report.repeat_seconds), "call")
        yield ["then", f"{human_time(median)} (median of {repeats}, best {human_time(best)})"]
