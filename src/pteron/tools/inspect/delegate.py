"""A delegate -> a report of its graph: operators, constants, memory, live integers."""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pteron.errors import FormatError, PteronError
from pteron.families.exporter_removed import explained
from pteron.format.delegate import BACKENDS, read_delegate
from pteron.format.foreign import RE_EXPORT
from pteron.format.records import DelegateGraph, DelegateRecord
from pteron.graph import Graph, Node, Tensor, build
from pteron.graph.values import describe
from pteron.ops import Target, Weight
from pteron.ops.terms import dim_id
from pteron.passes import is_available, prepare
from pteron.plan import Compiled, Plan
from pteron.tools.text import counted


@dataclass(frozen=True, slots=True)
class OperatorUse:
    name: str
    count: int
    available: bool  # whether it is supported


@dataclass(frozen=True, slots=True)
class MemoryUse:
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class DelegateReport:
    """A delegate. For other backends only the size is known; states and activations need all operators to be
    supported."""

    backend: str
    bytes: int
    nodes: int = 0
    operators: tuple[OperatorUse, ...] = ()
    constants: MemoryUse | None = None
    constants_missing: tuple[str, ...] = ()
    states: MemoryUse | None = None
    activations: MemoryUse | None = None
    live_integers: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()  # dynamic dims: each of their sizes needs its own plan
    graph: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExaminedDelegate:
    """A delegate's report, its graph if it can be built, and the compiled graph if it compiles."""

    report: DelegateReport
    graph: Graph | None = None
    compiled: Compiled | None = None


def inspect_delegate(
    delegate: DelegateRecord, name: str, weights: Mapping[str, memoryview], target: Target, with_graph: bool
) -> ExaminedDelegate:
    report = DelegateReport(delegate.backend, len(delegate.blob))
    if delegate.backend not in BACKENDS:
        problem = f"{delegate.backend} programs are not supported: {RE_EXPORT}"
        return ExaminedDelegate(replace(report, problems=(problem,)))
    record = read_delegate(delegate.blob, name, weights.get)
    report = _of_record(report, record)
    try:
        graph = build(_with_placeholders(record))
    except FormatError as error:
        return ExaminedDelegate(_with_problems(report, str(error)))
    if with_graph:
        report = replace(report, graph=tuple(map(_line, graph.nodes)))
    if not all(use.available for use in report.operators):
        return ExaminedDelegate(report, graph)
    try:
        compiled = Compiled(prepare(graph), target, may_exceed=True)
        at_most = compiled.plan_at_maximum()  # as loading does: it checks the whole graph
    except PteronError as error:
        return ExaminedDelegate(_with_problems(report, str(error)), graph)
    report = _of_compiled(report, graph, compiled)
    too_large = _too_large(name, compiled, at_most[0] if at_most else None)
    return ExaminedDelegate(_with_problems(report, *too_large), graph, compiled)


def with_pins(examined: ExaminedDelegate, dynamic: Sequence[Sequence[bool]]) -> ExaminedDelegate:
    """The same with the dims that its plans pin, found at the maximum shapes. `dynamic` says which dims of
    each input may be smaller."""
    compiled = examined.compiled
    if compiled is None or not any(map(any, dynamic)):
        return examined
    names = {
        dim_id(tensor.id, dim): (f"dim {dim} of input {index}", tensor.shape_max[dim])
        for index, (tensor, are) in enumerate(zip(compiled.prepared.graph.inputs, dynamic, strict=True))
        if isinstance(tensor, Tensor)
        for dim, is_free in enumerate(are)
        if is_free and tensor.shape_max[dim] > 1
    }
    values = {source.symbol: 0 for source in compiled.executable.sources}
    try:
        walked = compiled.walk(compiled.shapes_max, values | {id: most for id, (_, most) in names.items()})
    except PteronError:  # sizes depend on live integers, which are not known here
        return examined
    pins = walked.trace.pins.items()
    pinned = tuple(f"{names[id][0]}, by node {node.index} {node.name}" for id, node in pins if node)
    return replace(examined, report=replace(examined.report, pinned=pinned))


def _too_large(name: str, compiled: Compiled, plan: Plan | None) -> Iterator[str]:
    """A message for each kind of buffer that exceeds the adapter's limit."""
    executable, most = compiled.executable, compiled.target.binding_bytes_max
    bound = [buffer for launch in plan.launches for buffer in launch.buffers] if plan else []
    for kind, sizes in (
        ("weights", [buffer.bytes for buffer in bound if isinstance(buffer, Weight)]),
        ("states", [state.bytes for state in executable.states.values()]),
        ("scratch memory", plan.scratch_bytes if plan else ()),
    ):
        if max(sizes, default=0) > most:
            yield f"{name}, {kind}: a buffer of {max(sizes):,} bytes; the adapter allows {most:,}"


def _with_problems(report: DelegateReport, *problems: str) -> DelegateReport:
    return replace(report, problems=(*report.problems, *problems))


def _of_record(report: DelegateReport, record: DelegateGraph) -> DelegateReport:
    uses = Counter(node.name for node in record.nodes)
    constants = {constant.key or index: constant for index, constant in enumerate(record.constants)}.values()
    operators = tuple(OperatorUse(name, count, is_available(name)) for name, count in uses.most_common())
    missing = tuple(str(constant.key) for constant in constants if constant.data is None)
    unknown = (use for use in operators if not use.available)
    problems = [f"{explained(use.name)} is not supported ({use.count}x)" for use in unknown]
    if missing:
        problems.append(f"{counted(len(missing), 'constant')} missing in the given files")
    return replace(
        report,
        nodes=len(record.nodes),
        operators=operators,
        constants=MemoryUse(len(constants), sum(constant.length for constant in constants)),
        constants_missing=missing,
        problems=tuple(problems),
    )


def _of_compiled(report: DelegateReport, graph: Graph, compiled: Compiled) -> DelegateReport:
    executable = compiled.executable
    state_bytes = [state.bytes for state in executable.states.values()]
    return replace(
        report,
        states=MemoryUse(len(state_bytes), sum(state_bytes)),
        activations=MemoryUse(len(executable.slots), sum(executable.slots)),
        live_integers=tuple(
            f"%{source.symbol} is from {source}: "
            f"{', '.join(str(graph.inputs[position]) for position in source.inputs)}"
            for source in executable.sources
        ),
    )


def _with_placeholders(record: DelegateGraph) -> DelegateGraph:
    """Replace missing constants by zeros, from an anonymous mapping that uses no memory until it is read."""
    lengths = [constant.length for constant in record.constants if constant.data is None]
    if not lengths:
        return record
    try:
        zeros = memoryview(mmap.mmap(-1, max(1, *lengths)))
    except (OSError, OverflowError, ValueError):
        raise FormatError(f"{record.name}: a constant of {max(lengths):,} bytes exceeds the memory") from None
    constants = (
        replace(constant, data=zeros[: constant.length]) if constant.data is None else constant
        for constant in record.constants
    )
    return replace(record, constants=tuple(constants))


def _line(node: Node) -> str:
    *inputs, output = node.args
    return f"{node.index:4}  {describe(output)} = {node.name}({', '.join(map(describe, inputs))})"
