"""A file -> a report of what is in it. No GPU is used, no weight is read, and nothing has to be supported."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pteron.dtypes import DType
from pteron.errors import InputError
from pteron.format import (
    BundledFile,
    DelegateCall,
    FileBytes,
    FreeCall,
    JumpFalseCall,
    KernelCall,
    MethodRecord,
    MoveCall,
    ProgramFile,
    TensorRecord,
    contents,
    is_bundled,
    load_weights,
    open_bytes,
    read_bundled,
    read_program,
    read_weights,
)
from pteron.runtime.host import find_operator, why_refused
from pteron.runtime.specs import ValueSpec, describe
from pteron.tools.inspect_delegate import DelegateReport, OperatorUse, inspect_delegate

_INSTRUCTIONS = {
    DelegateCall: "delegate call",
    KernelCall: "host operator",
    MoveCall: "move",
    JumpFalseCall: "jump",
    FreeCall: "free",
}


@dataclass(frozen=True, slots=True)
class MethodReport:
    """An entry point. One without instructions only gives its outputs, which are constants."""

    name: str
    inputs: tuple[ValueSpec, ...]
    outputs: tuple[ValueSpec, ...]
    instructions: Mapping[str, int]
    host_operators: tuple[OperatorUse, ...]
    host_constants: int
    host_constant_bytes: int
    delegates: tuple[DelegateReport, ...]

    @property
    def is_constant(self) -> bool:
        return not self.inputs and not self.instructions

    @property
    def problems(self) -> tuple[str, ...]:
        """Why it cannot run here."""
        hosted = [f"{use.name}: {why_refused()}" for use in self.host_operators if not use.available]
        return (*(problem for delegate in self.delegates for problem in delegate.problems), *hosted)


@dataclass(frozen=True, slots=True)
class ProgramReport:
    """A .pte program, or the program in a bundled .bpte with how many test cases its methods have."""

    name: str
    kind: str
    bytes: int
    version: int
    named_data: int
    named_data_bytes: int
    methods: tuple[MethodReport, ...]
    test_cases: Mapping[str, int]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WeightReport:
    """One entry of a weight file; data that are not a tensor's have no element type."""

    key: str
    dtype: DType | None
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class WeightFileReport:
    """A .ptd weight file."""

    name: str
    kind: str
    bytes: int
    weights: tuple[WeightReport, ...]


def inspect(
    path: str | os.PathLike[str],
    data: Sequence[str | os.PathLike[str]] = (),
    method: str | None = None,
    *,
    graph: bool = False,
) -> ProgramReport | WeightFileReport:
    """What is in a .pte, .bpte or .ptd file; `method` limits it to one, `graph` adds every node."""
    file = open_bytes(path)
    if bytes(contents(file.view[4:8])) == b"FT01":
        return _weight_file(file)
    bundle = read_bundled(file.view, file.name) if is_bundled(file.view) else None
    view = bundle.program if bundle else file.view
    program = read_program(view, file.name)
    chosen = [record for record in program.methods if method in (None, record.name)]
    if not chosen:
        names = ", ".join(record.name for record in program.methods)
        raise InputError(f"{program.name} has no method {method!r}; it has {names}")
    weights = {**load_weights(data), **program.named_data}
    methods = tuple(_method(program, record, weights, graph) for record in chosen)
    return ProgramReport(
        name=Path(program.name).name,
        kind=_kind(view, bundle),
        bytes=len(file.view),
        version=program.version,
        named_data=len(program.named_data),
        named_data_bytes=sum(map(len, program.named_data.values())),
        methods=methods,
        test_cases={suite.method: len(suite.cases) for suite in bundle.suites} if bundle else {},
        problems=tuple(dict.fromkeys(problem for report in methods for problem in report.problems)),
    )


def _kind(view: memoryview, bundle: BundledFile | None) -> str:
    layout = "with segments" if bytes(contents(view[8:12])) == b"eh00" else "one flatbuffer, without segments"
    return f"{'bundled ' if bundle else ''}ExecuTorch program, {layout}"


def _method(
    program: ProgramFile, record: MethodRecord, weights: Mapping[str, memoryview], graph: bool
) -> MethodReport:
    inspected = [
        inspect_delegate(delegate, f"{program.name}, {record.name}, delegate {index}", weights, graph)
        for index, delegate in enumerate(record.delegates)
    ]
    inputs, outputs = describe(record, [prepared for _, prepared in inspected])
    calls = Counter(
        record.operators[call.operator] for call in record.instructions if isinstance(call, KernelCall)
    )
    constants = [
        len(value.data)
        for value in record.values
        if isinstance(value, TensorRecord) and value.data is not None
    ]
    return MethodReport(
        name=record.name,
        inputs=inputs,
        outputs=outputs,
        instructions=Counter(_INSTRUCTIONS[type(call)] for call in record.instructions),
        host_operators=tuple(
            OperatorUse(name, count, find_operator(name) is not None) for name, count in calls.most_common()
        ),
        host_constants=len(constants),
        host_constant_bytes=sum(constants),
        delegates=tuple(report for report, _ in inspected),
    )


def _weight_file(file: FileBytes) -> WeightFileReport:
    weights = read_weights(file.view, file.name)
    entries = []
    for key, view in weights.data.items():
        layout = weights.layouts[key]
        dtype, shape = (layout.dtype, layout.sizes) if layout else (None, ())
        entries.append(WeightReport(key, dtype, shape, len(view)))
    return WeightFileReport(Path(file.name).name, "ExecuTorch weights", len(file.view), tuple(entries))
