"""A file -> the data of the page. No device is opened; weights are only read for histograms."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pteron.errors import InputError, PteronError
from pteron.format.source import contents, open_bytes
from pteron.graph import Constant, Graph, Shape, Tensor
from pteron.ops import Target
from pteron.passes import prepare
from pteron.plan import Compiled
from pteron.tools import Progress, silent
from pteron.tools.graph_structure import find_repetitions
from pteron.tools.inputs import LiveSize
from pteron.tools.inspect.delegate import ExaminedDelegate
from pteron.tools.inspect.page.dynamic import dynamic_dims
from pteron.tools.inspect.page.graphs import OperatorTable, describe_calls, describe_nodes, describe_values
from pteron.tools.inspect.page.histograms import histogram
from pteron.tools.inspect.page.method import delegate_shapes, describe_instruction, free_dims, live_by_plan
from pteron.tools.inspect.page.plans import KernelTable, describe_plan
from pteron.tools.inspect.page.report import (
    ConstantDetails,
    DelegateDetails,
    MethodDetails,
    PlanDetails,
    ProgramDetails,
)
from pteron.tools.inspect.program import ExaminedMethod, examine_program
from pteron.tools.inspect.text import value_text


@dataclass(frozen=True, slots=True)
class PageOptions:
    """The live sizes to plan for (default: the maximum, and 1), the value of live integers, and whether
    histograms read whole constants."""

    sizes: Sequence[LiveSize] = ()
    integers: int = 0
    whole_histograms: bool = False


def program_details(
    path: str | os.PathLike[str],
    data: Sequence[str | os.PathLike[str]] = (),
    method: str | None = None,
    *,
    adapter: str | None = None,
    options: PageOptions | None = None,
    progress: Progress = silent,
) -> ProgramDetails:
    """The data of a program's page. Plans are for the named adapter, else for the default adapter if it is a
    GPU, else for a GPU with WebGPU's default limits."""
    file = open_bytes(path)
    if bytes(contents(file.view[4:8])) == b"FT01":
        raise InputError(f"{file.name}: a weight file has no graph to show")
    progress("reading the program", 0, 0)
    examined = examine_program(file, data, method, adapter=adapter)
    local = examined.local
    target, planned_for = (local.target, str(local.adapter)) if adapter else local.planning_target
    gatherer = _Gatherer(target, options or PageOptions(), KernelTable(), progress)
    methods = tuple(map(gatherer.method, examined.methods))
    report = examined.report
    return ProgramDetails(
        name=report.name,
        kind=report.kind,
        bytes=report.bytes,
        adapter=report.adapter,
        planned_for=planned_for,
        problems=report.problems,
        methods=methods,
        kernels=gatherer.kernels.entries(),
    )


@dataclass(slots=True)
class _Gatherer:
    target: Target
    options: PageOptions
    kernels: KernelTable
    progress: Progress

    def method(self, examined: ExaminedMethod) -> MethodDetails:
        record, report = examined.record, examined.report
        plans = live_by_plan(report.inputs, self.options.sizes) if examined.delegates else {}
        return MethodDetails(
            name=record.name,
            inputs=tuple(map(str, report.inputs)),
            outputs=tuple(map(value_text if report.is_constant else str, report.outputs)),
            instructions=tuple(describe_instruction(record, each) for each in record.instructions),
            delegates=tuple(
                self._delegate(examined, index, plans) for index in range(len(examined.delegates))
            ),
        )

    def _delegate(
        self, method: ExaminedMethod, index: int, plans: Mapping[str, Sequence[Shape]]
    ) -> DelegateDetails:
        delegate = method.delegates[index]
        name, report = f"delegate {index}", delegate.report
        if delegate.graph is None:
            return DelegateDetails(name, report.backend, report.bytes, report.problems)
        self.progress(f"reading {method.report.name}, {name}", 0, 0)
        operators = OperatorTable()
        nodes = describe_nodes(delegate.graph, operators)
        compiled = Compiled(delegate.compiled.prepared, self.target) if delegate.compiled else None
        unrewritten = _without_rewrites(delegate.graph, compiled) if compiled else None
        dynamic = dynamic_dims(unrewritten, free_dims(method, index, delegate.graph)) if unrewritten else {}
        calls = compiled.prepared.calls if compiled else ()
        values, constants = describe_values(delegate.graph, calls, dynamic)
        once = compiled.prepared.once if compiled else ()
        call_details = describe_calls(calls, once, operators) if compiled else None
        packed = _packed_constants(delegate.graph)
        return DelegateDetails(
            name=name,
            backend=report.backend,
            bytes=report.bytes,
            problems=report.problems,
            inputs=tuple(value.id for value in delegate.graph.inputs),
            outputs=tuple(value.id for value in delegate.graph.outputs),
            values=values,
            constants=tuple(
                self._constant(constant, constant in packed, delegate, (place, len(constants)))
                for place, constant in enumerate(constants)
            ),
            operators=operators.entries(),
            nodes=nodes,
            calls=call_details,
            repetitions=find_repetitions(
                [node.name for node in delegate.graph.nodes], [(node.reads, node.writes) for node in nodes]
            ),
            plans=self._plans(method, index, compiled, unrewritten, constants, plans)
            if compiled and unrewritten
            else (),
        )

    def _plans(
        self,
        method: ExaminedMethod,
        index: int,
        compiled: Compiled,
        unrewritten: Compiled,
        constants: Sequence[Constant],
        plans: Mapping[str, Sequence[Shape]],
    ) -> tuple[PlanDetails, ...]:
        found = []
        for title, shapes in plans.items():
            self.progress(f"planning {title}", 0, 0)
            live, notes = delegate_shapes(method, index, compiled, shapes, self.options.integers)
            plan = describe_plan(
                title, (compiled, unrewritten), live, self.options.integers, constants, self.kernels, notes
            )
            found.append(plan)
        return tuple(found)

    def _constant(
        self, constant: Constant, is_packed: bool, delegate: ExaminedDelegate, place: tuple[int, int]
    ) -> ConstantDetails:
        self.progress("reading constants", *place)
        is_given = constant.key not in delegate.report.constants_missing
        bits = 4 if is_packed and constant.dtype.itemsize == 1 else None
        return ConstantDetails(
            key=constant.key,
            type=f"{constant.dtype}{list(constant.shape)}",
            bytes=len(constant.data),
            is_given=is_given,
            histogram=histogram(constant, is_whole=self.options.whole_histograms, bits=bits)
            if is_given
            else None,
        )


def _without_rewrites(graph: Graph, compiled: Compiled) -> Compiled:
    """The graph without rewrites, which has shapes for all tensors; the rewritten one if only that
    compiles."""
    try:
        return Compiled(prepare(graph, ()), compiled.target)
    except PteronError:
        return compiled


def _packed_constants(graph: Graph) -> set[Constant]:
    """The constants of 4-bit operators, two values per byte."""
    return {
        value.constant
        for node in graph.nodes
        if "q4" in node.name
        for value in node.args
        if isinstance(value, Tensor) and value.constant is not None
    }
