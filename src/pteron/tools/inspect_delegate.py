"""A delegate's blob -> a report of its graph: operators, constants, memory, live integers."""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pteron.errors import FormatError
from pteron.families.elided.operators import explained
from pteron.format import BACKEND, DelegateGraph, DelegateRecord, read_delegate
from pteron.graph import Graph, Node, build
from pteron.graph.values import describe
from pteron.ops import Target
from pteron.passes import Source, is_available, prepare
from pteron.plan import Compiled
from pteron.tools.text import counted


@dataclass(frozen=True, slots=True)
class OperatorUse:
    """How often an operator is called, and whether it can run here."""

    name: str
    count: int
    available: bool


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Buffers and their bytes together."""

    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class DelegateReport:
    """A delegate. Of one for another backend only the size is known; states and activations are known
    where all operators are."""

    backend: str
    bytes: int
    nodes: int = 0
    operators: tuple[OperatorUse, ...] = ()
    constants: MemoryUse | None = None
    constants_missing: tuple[str, ...] = ()
    states: MemoryUse | None = None
    activations: MemoryUse | None = None
    live_integers: tuple[str, ...] = ()
    graph: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def inspect_delegate(
    delegate: DelegateRecord, name: str, weights: Mapping[str, memoryview], with_graph: bool
) -> tuple[DelegateReport, Compiled | None]:
    """The report, and the graph prepared as far as planning its shapes needs it, where that is possible."""
    report = DelegateReport(delegate.backend, len(delegate.blob))
    if delegate.backend != BACKEND:
        return replace(report, problems=(f"{delegate.backend} programs do not run here",)), None
    record = read_delegate(delegate.blob, name, weights.get)
    report = _of_record(report, record)
    try:
        graph = build(_with_stand_ins(record))
    except FormatError as error:
        return replace(report, problems=(*report.problems, str(error))), None
    if with_graph:
        report = replace(report, graph=tuple(map(_line, graph.nodes)))
    if not all(use.available for use in report.operators):
        return report, None
    try:
        compiled = Compiled(prepare(graph), Target())
    except FormatError as error:
        return replace(report, problems=(*report.problems, str(error))), None
    return _of_compiled(report, graph, compiled), compiled


def _of_record(report: DelegateReport, record: DelegateGraph) -> DelegateReport:
    uses = Counter(node.name for node in record.nodes)
    constants = {constant.key or index: constant for index, constant in enumerate(record.constants)}.values()
    operators = tuple(OperatorUse(name, count, is_available(name)) for name, count in uses.most_common())
    missing = tuple(str(constant.key) for constant in constants if constant.data is None)
    problems = [
        f"{explained(use.name)} is not supported ({use.count}x)" for use in operators if not use.available
    ]
    if missing:
        problems.append(f"{counted(len(missing), 'constant')} in none of the files given")
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
        live_integers=tuple(_source(graph, source) for source in executable.sources),
    )


def _with_stand_ins(record: DelegateGraph) -> DelegateGraph:
    """Constants that are in no file get zeros, from a mapping that costs no memory while nobody reads it."""
    lengths = [constant.length for constant in record.constants if constant.data is None]
    if not lengths:
        return record
    try:
        zeros = memoryview(mmap.mmap(-1, max(1, *lengths)))
    except (OSError, OverflowError, ValueError):
        raise FormatError(
            f"{record.name}: a constant of {max(lengths):,} bytes is larger than any memory"
        ) from None
    constants = (
        replace(constant, data=zeros[: constant.length]) if constant.data is None else constant
        for constant in record.constants
    )
    return replace(record, constants=tuple(constants))


def _source(graph: Graph, source: Source) -> str:
    element = "" if source.dim is None else f", element {source.index} of dim {source.dim}"
    return f"%{source.symbol} is input {source.input} {graph.inputs[source.input]}{element}"


def _line(node: Node) -> str:
    *inputs, output = node.args
    return f"{node.index:4}  {describe(output)} = {node.name}({', '.join(map(describe, inputs))})"
