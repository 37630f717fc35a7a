"""`inspect`: a file -> a report of its content, without opening a device, reading weights or requiring that
its operators are supported."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pteron.errors import InputError, PteronError
from pteron.format.bundled import is_bundled, read_bundled
from pteron.format.delegate import BACKENDS
from pteron.format.program import read_program
from pteron.format.records import (
    DelegateCall,
    FreeCall,
    JumpFalseCall,
    KernelCall,
    MethodRecord,
    MoveCall,
    ProgramFile,
    TensorRecord,
)
from pteron.format.source import FileBytes, contents, open_bytes
from pteron.format.weights import load_weights, read_weights
from pteron.names.locate import weight_files
from pteron.ops import Target
from pteron.plan import Compiled
from pteron.runtime.checks import check_method, with_bounds_of_delegates
from pteron.runtime.fitting import fitting_dims
from pteron.runtime.method_memory import with_external_data
from pteron.runtime.specs import ValueSpec, describe
from pteron.tools.inspect.delegate import ExaminedDelegate, OperatorUse, inspect_delegate, with_pins
from pteron.tools.inspect.report import MethodReport, ProgramReport, WeightFileReport, WeightReport
from pteron.tools.local_adapter import LocalAdapter, find_adapter

if TYPE_CHECKING:
    from pteron.host.operator import HostOperator

_INSTRUCTIONS = {
    DelegateCall: "delegate call",
    KernelCall: "host operator",
    MoveCall: "move",
    JumpFalseCall: "jump",
    FreeCall: "free",
}


@dataclass(frozen=True, slots=True)
class ExaminedMethod:
    """A method's report, its record, and its delegates, compiled if possible."""

    report: MethodReport
    record: MethodRecord
    delegates: tuple[ExaminedDelegate, ...]

    def compiled_for(self, target: Target) -> list[Compiled]:
        """Its delegates, compiled for a target; an InputError if one cannot be."""
        found = []
        for index, delegate in enumerate(self.delegates):
            if delegate.compiled is None:
                problems = "; ".join(delegate.report.problems) or "its graph cannot be compiled"
                raise InputError(f"{self.report.name}, delegate {index}: {problems}")
            found.append(Compiled(delegate.compiled.prepared, target))
        return found


@dataclass(frozen=True, slots=True)
class ExaminedProgram:
    report: ProgramReport
    local: LocalAdapter
    methods: tuple[ExaminedMethod, ...]


def inspect(
    path: str | os.PathLike[str] | FileBytes,
    data: Sequence[str | os.PathLike[str] | FileBytes] = (),
    method: str | None = None,
    *,
    graph: bool = False,
    adapter: str | None = None,
) -> ProgramReport | WeightFileReport:
    """The content of a .pte, .bpte or .ptd file, and whether it runs on the named or default adapter of this
    machine; `method` selects one method, `graph` adds every node."""
    file = open_bytes(path)
    if bytes(contents(file.view[4:8])) == b"FT01":
        return _weight_file(file)
    return examine_program(file, data, method, graph=graph, adapter=adapter).report


def examine_program(
    file: FileBytes,
    data: Sequence[str | os.PathLike[str] | FileBytes] = (),
    method: str | None = None,
    *,
    graph: bool = False,
    adapter: str | None = None,
    local: LocalAdapter | None = None,
) -> ExaminedProgram:
    """A program and its compiled graphs, for the named adapter or for `local`."""
    bundle = read_bundled(file.view, file.name) if is_bundled(file.view) else None
    view = bundle.program if bundle else file.view
    program = read_program(view, file.name)
    chosen = [record for record in program.methods if method in (None, record.name)]
    if not chosen:
        names = ", ".join(record.name for record in program.methods)
        raise InputError(f"{program.name} has no method {method!r}; it has {names}")
    local = local or find_adapter(adapter)
    weights = {**load_weights(weight_files(data)), **program.named_data}
    methods = tuple(_method(program, record, weights, local, graph) for record in chosen)
    needs_adapter = any(examined.delegates for examined in methods)
    problems = [problem for examined in methods for problem in examined.report.problems]
    if needs_adapter and local.problem:
        problems.append(local.problem)
    has_segments = bytes(contents(view[8:12])) == b"eh00"
    layout = "with segments" if has_segments else "one flatbuffer, without segments"
    report = ProgramReport(
        name=Path(program.name).name,
        kind=f"{'bundled ' if bundle else ''}ExecuTorch program, {layout}",
        bytes=len(file.view),
        version=program.version,
        named_data=len(program.named_data),
        named_data_bytes=sum(map(len, program.named_data.values())),
        methods=tuple(examined.report for examined in methods),
        test_cases={suite.method: len(suite.cases) for suite in bundle.suites} if bundle else {},
        problems=tuple(dict.fromkeys(problems)),
        adapter=local.adapter if needs_adapter else None,
        made_for=_made_for(program),
        host_reasons=tuple(map(str, program.host_calls)),
    )
    return ExaminedProgram(report, local, methods)


def _made_for(program: ProgramFile) -> str | None:
    backends = {delegate.backend for record in program.methods for delegate in record.delegates}
    if not backends <= set(BACKENDS) or not backends:
        return None
    own = BACKENDS[1] in backends
    return "Pteron" if own else "ExecuTorch's Vulkan and WebGPU runtimes, and Pteron"


def _method(
    program: ProgramFile,
    record: MethodRecord,
    weights: Mapping[str, memoryview],
    local: LocalAdapter,
    graph: bool,
) -> ExaminedMethod:
    where = f"{program.name}, {record.name}, delegate"
    examined = tuple(
        inspect_delegate(delegate, f"{where} {index}", weights, local.limits, graph)
        for index, delegate in enumerate(record.delegates)
    )
    loaded = _as_loaded(program, record, weights, examined)
    described = record if isinstance(loaded, str) else loaded
    inputs, outputs = describe(described, [delegate.compiled for delegate in examined])
    excess = [str(each.compiled.excess) for each in examined if each.compiled and each.compiled.excess]
    fitting = _fitting(described, examined, inputs) if excess else None
    known = {id: spec.dynamic for id, spec in zip(record.inputs, inputs, strict=True)}
    for call in record.instructions:
        if isinstance(call, DelegateCall) and (found := examined[call.delegate].graph):
            given = [known.get(id) or _all_dynamic(described, id) for id in call.args[: len(found.inputs)]]
            made = with_pins(examined[call.delegate], given)
            examined = *examined[: call.delegate], made, *examined[call.delegate + 1 :]
    hosted = (call for call in record.instructions if isinstance(call, KernelCall))
    calls = Counter(record.operators[call.operator] for call in hosted)
    tensors = (value for value in record.values if isinstance(value, TensorRecord))
    constants = [len(tensor.data) for tensor in tensors if tensor.data is not None]
    report = MethodReport(
        name=record.name,
        inputs=inputs,
        outputs=outputs,
        instructions=Counter(_INSTRUCTIONS[type(call)] for call in record.instructions),
        host_operators=tuple(
            OperatorUse(name, count, _host_operator(name) is not None) for name, count in calls.most_common()
        ),
        host_constants=len(constants),
        host_constant_bytes=sum(constants),
        delegates=tuple(delegate.report for delegate in examined),
        refusal=loaded if isinstance(loaded, str) else excess[0] if excess and not fitting else None,
        fitting=fitting,
    )
    return ExaminedMethod(report, record, examined)


def _fitting(
    record: MethodRecord, delegates: Sequence[ExaminedDelegate], inputs: Sequence[ValueSpec]
) -> str | None:
    from pteron.runtime.dry_run import DryRun  # lazy: it needs the host operators

    compiled = [delegate.compiled for delegate in delegates if delegate.compiled]
    try:
        return fitting_dims(DryRun(record, compiled, in_full=True), inputs)
    except PteronError:  # an operator is missing here
        return None


def _all_dynamic(record: MethodRecord, id: int) -> tuple[bool, ...]:
    """Of a value between delegates the file only says whether it has a dynamic dim."""
    value = record.values[id]
    return (value.dynamism != "static",) * len(value.sizes) if isinstance(value, TensorRecord) else ()


def _host_operator(name: str) -> HostOperator | None:
    from pteron.host.lookup import find_operator  # lazy: most programs call none

    return find_operator(name)


def _as_loaded(
    program: ProgramFile,
    record: MethodRecord,
    weights: Mapping[str, memoryview],
    delegates: Sequence[ExaminedDelegate],
) -> MethodRecord | str:
    """The method's record after loading, or why it cannot be loaded although its operators and delegates are
    supported."""
    operators = [operator for name in record.operators if (operator := _host_operator(name)) is not None]
    graphs = [delegate.graph for delegate in delegates if delegate.graph is not None]
    if len(operators) < len(record.operators) or any(delegate.compiled is None for delegate in delegates):
        return record  # the problem is reported elsewhere
    where = f"{program.name}, method {record.name}"
    try:
        whole = with_external_data(program, record, weights)
        check_method(where, whole, operators, graphs)
    except PteronError as error:
        return str(error)
    return with_bounds_of_delegates(whole, operators, graphs)


def _weight_file(file: FileBytes) -> WeightFileReport:
    weights = read_weights(file.view, file.name)
    entries = []
    for key, view in weights.data.items():
        layout = weights.layouts[key]
        dtype, shape = (layout.dtype, layout.sizes) if layout else (None, ())
        entries.append(WeightReport(key, dtype, shape, len(view)))
    return WeightFileReport(Path(file.name).name, "ExecuTorch weights", len(file.view), tuple(entries))
