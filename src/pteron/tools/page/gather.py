"""A file -> all that the page shows of it. No device is opened; weights are read for histograms alone."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pteron.errors import InputError, PteronError
from pteron.format import contents, open_bytes
from pteron.graph import Constant, Graph, Shape, Tensor
from pteron.ops import Target
from pteron.passes import prepare
from pteron.plan import Compiled
from pteron.tools.inputs import LiveSize
from pteron.tools.inspect import ExaminedMethod, examine_program
from pteron.tools.inspect_delegate import ExaminedDelegate
from pteron.tools.inspect_text import value_text
from pteron.tools.page.blocks import find_repetitions
from pteron.tools.page.dynamic import dynamic_dims
from pteron.tools.page.graphs import OperatorTable, describe_calls, describe_nodes, describe_values
from pteron.tools.page.histograms import histogram
from pteron.tools.page.method import delegate_shapes, describe_instruction, free_dims, live_by_plan
from pteron.tools.page.plans import KernelTable, describe_plan
from pteron.tools.page.report import (
    ConstantInside,
    DelegateInside,
    MethodInside,
    PlanInside,
    ProgramInside,
)
from pteron.tools.progress import Progress, silent


@dataclass(frozen=True, slots=True)
class Wishes:
    """What to plan for and how closely to look: live sizes (none: the maximum, and 1 beside it), the value of
    live integers, whether histograms are of whole constants."""

    sizes: Sequence[LiveSize] = ()
    integers: int = 0
    whole_histograms: bool = False


def look_inside(
    path: str | os.PathLike[str],
    data: Sequence[str | os.PathLike[str]] = (),
    method: str | None = None,
    *,
    adapter: str | None = None,
    wishes: Wishes | None = None,
    progress: Progress = silent,
) -> ProgramInside:
    """All that the page shows of a program. Its plans are for the adapter named; without a name, for the
    default one if that is a GPU, or else for a GPU that any machine may have."""
    file = open_bytes(path)
    if bytes(contents(file.view[4:8])) == b"FT01":
        raise InputError(f"{file.name}: a weight file has no graph to show")
    progress("reading the program", 0, 0)
    examined = examine_program(file, data, method, adapter=adapter)
    here = examined.here
    target, planned_for = (here.target, str(here.adapter)) if adapter else here.worth_planning_for
    gathering = _Gathering(target, wishes or Wishes(), KernelTable(), progress)
    methods = tuple(map(gathering.method, examined.methods))
    report = examined.report
    return ProgramInside(
        name=report.name,
        kind=report.kind,
        bytes=report.bytes,
        adapter=report.adapter,
        planned_for=planned_for,
        problems=report.problems,
        methods=methods,
        kernels=gathering.kernels.entries(),
    )


@dataclass(slots=True)
class _Gathering:
    target: Target
    wishes: Wishes
    kernels: KernelTable
    progress: Progress

    def method(self, examined: ExaminedMethod) -> MethodInside:
        record, report = examined.record, examined.report
        plans = live_by_plan(report.inputs, self.wishes.sizes) if examined.delegates else {}
        return MethodInside(
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
    ) -> DelegateInside:
        delegate = method.delegates[index]
        name, report = f"delegate {index}", delegate.report
        if delegate.graph is None:
            return DelegateInside(name, report.backend, report.bytes, report.problems)
        self.progress(f"looking into {method.report.name}, {name}", 0, 0)
        operators = OperatorTable()
        nodes = describe_nodes(delegate.graph, operators)
        compiled = Compiled(delegate.compiled.prepared, self.target) if delegate.compiled else None
        unwritten = _without_rewrites(delegate.graph, compiled) if compiled else None
        dynamic = dynamic_dims(unwritten, free_dims(method, index, delegate.graph)) if unwritten else {}
        calls = compiled.prepared.calls if compiled else ()
        values, constants = describe_values(delegate.graph, calls, dynamic)
        once = compiled.prepared.once if compiled else ()
        inside_calls = describe_calls(calls, once, operators) if compiled else None
        packed = _packed_constants(delegate.graph)
        return DelegateInside(
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
            calls=inside_calls,
            repetitions=find_repetitions(
                [node.name for node in delegate.graph.nodes], [(node.reads, node.writes) for node in nodes]
            ),
            plans=self._plans(method, index, compiled, unwritten, constants, plans)
            if compiled and unwritten
            else (),
        )

    def _plans(
        self,
        method: ExaminedMethod,
        index: int,
        compiled: Compiled,
        unwritten: Compiled,
        constants: Sequence[Constant],
        plans: Mapping[str, Sequence[Shape]],
    ) -> tuple[PlanInside, ...]:
        found = []
        for title, shapes in plans.items():
            self.progress(f"planning {title}", 0, 0)
            live, notes = delegate_shapes(method, index, compiled, shapes, self.wishes.integers)
            plan = describe_plan(
                title, (compiled, unwritten), live, self.wishes.integers, constants, self.kernels, notes
            )
            found.append(plan)
        return tuple(found)

    def _constant(
        self, constant: Constant, is_packed: bool, delegate: ExaminedDelegate, place: tuple[int, int]
    ) -> ConstantInside:
        self.progress("reading constants", *place)
        is_given = constant.key not in delegate.report.constants_missing
        bits = 4 if is_packed and constant.dtype.itemsize == 1 else None
        return ConstantInside(
            key=constant.key,
            type=f"{constant.dtype}{list(constant.shape)}",
            bytes=len(constant.data),
            is_given=is_given,
            histogram=histogram(constant, is_whole=self.wishes.whole_histograms, bits=bits)
            if is_given
            else None,
        )


def _without_rewrites(graph: Graph, compiled: Compiled) -> Compiled:
    """The graph as the file has it, whose tensors all have shapes; as compiled, where it fits only so."""
    try:
        return Compiled(prepare(graph, ()), compiled.target)
    except PteronError:
        return compiled


def _packed_constants(graph: Graph) -> set[Constant]:
    """The constants that operators of 4-bit weights take: two numbers to a byte."""
    return {
        value.constant
        for node in graph.nodes
        if "q4" in node.name
        for value in node.args
        if isinstance(value, Tensor) and value.constant is not None
    }
