"""A file -> the data of the page. No device is opened; weights are only read for histograms."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pteron.errors import InputError, PteronError
from pteron.format.records import (
    DelegateCall,
    FreeCall,
    Instruction,
    JumpFalseCall,
    KernelCall,
    MethodRecord,
    MoveCall,
)
from pteron.format.source import contents, open_bytes
from pteron.graph import Constant, Graph, Shape, Tensor
from pteron.ops import Target
from pteron.passes import prepare
from pteron.plan import Compiled
from pteron.runtime.checks import describe_record
from pteron.tools import Progress, silent
from pteron.tools.graph_structure import find_repetitions
from pteron.tools.inputs import LiveSize
from pteron.tools.inspect.delegate import ExaminedDelegate
from pteron.tools.inspect.page import graphs
from pteron.tools.inspect.page.details import (
    ConstantDetails,
    DelegateDetails,
    InstructionDetails,
    MethodDetails,
    PlanDetails,
    ProgramDetails,
)
from pteron.tools.inspect.page.plans import KernelTable, describe_plan
from pteron.tools.inspect.plans import plan_delegate, shapes_by_title
from pteron.tools.inspect.program import ExaminedMethod, examine_program
from pteron.tools.inspect.report import value_text


@dataclass(frozen=True, slots=True)
class PageOptions:
    """The live sizes to plan for (default: the maximum, and 1), the value of live integers, whether
    histograms read whole constants, and the kernel whose texts are kept however long they are."""

    sizes: Sequence[LiveSize] = ()
    integers: int = 0
    whole_histograms: bool = False
    kernel: str | None = None


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
    local, report = examined.local, examined.report
    target, planned_for = (local.target, str(local.adapter)) if adapter else local.planning_target
    chosen = options or PageOptions()
    gatherer = _Gatherer(target, chosen, KernelTable(chosen.kernel), progress)
    return ProgramDetails(
        name=report.name,
        kind=report.kind,
        bytes=report.bytes,
        adapter=report.adapter,
        planned_for=planned_for,
        problems=report.problems,
        made_for=report.made_for,
        host_reasons=report.host_reasons,
        methods=tuple(map(gatherer.method, examined.methods)),
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
        plans = shapes_by_title(report.inputs, self.options.sizes) if examined.delegates else {}
        return MethodDetails(
            name=record.name,
            inputs=tuple(map(str, report.inputs)),
            outputs=tuple(map(value_text if report.is_constant else str, report.outputs)),
            instructions=tuple(_instruction(record, each) for each in record.instructions),
            delegates=tuple(
                self._delegate(examined, index, plans) for index in range(len(examined.delegates))
            ),
        )

    def _delegate(
        self, method: ExaminedMethod, index: int, plans: Mapping[str, Sequence[Shape]]
    ) -> DelegateDetails:
        delegate = method.delegates[index]
        name, report, graph = f"delegate {index}", delegate.report, delegate.graph
        if graph is None:
            return DelegateDetails(name, report.backend, report.bytes, report.problems)
        self.progress(f"reading {method.report.name}, {name}", 0, 0)
        operators: dict[str, int] = {}  # numbered in the order of their first use
        nodes = graphs.describe_nodes(graph, operators)
        both = self._compiled(graph, delegate)
        dynamic = graphs.dynamic_dims(both[1], _free_dims(method, index, graph)) if both else {}
        calls = both[0].prepared.calls if both else ()
        values, constants = graphs.describe_values(graph, calls, dynamic)
        call_details = graphs.describe_calls(calls, both[0].prepared.once, operators) if both else None
        packed = _packed_constants(graph)
        return DelegateDetails(
            name=name,
            backend=report.backend,
            bytes=report.bytes,
            problems=report.problems,
            inputs=tuple(value.id for value in graph.inputs),
            outputs=tuple(value.id for value in graph.outputs),
            values=values,
            constants=tuple(
                self._constant(constant, constant in packed, delegate, (place, len(constants)))
                for place, constant in enumerate(constants)
            ),
            operators=tuple(map(graphs.describe_operator, operators)),
            nodes=nodes,
            calls=call_details,
            repetitions=find_repetitions(
                [node.name for node in graph.nodes], [(node.reads, node.writes) for node in nodes]
            ),
            plans=tuple(
                self._plan(method, index, both, constants, title, shapes) for title, shapes in plans.items()
            )
            if both
            else (),
        )

    def _compiled(self, graph: Graph, delegate: ExaminedDelegate) -> tuple[Compiled, Compiled] | None:
        """The compiled graph, and the same without rewrites, which has shapes for all tensors, unless only
        the rewritten one compiles."""
        if delegate.compiled is None:
            return None
        compiled = Compiled(delegate.compiled.prepared, self.target)
        try:
            return compiled, Compiled(prepare(graph, ()), self.target)
        except PteronError:
            return compiled, compiled

    def _plan(
        self,
        method: ExaminedMethod,
        index: int,
        both: tuple[Compiled, Compiled],
        constants: Sequence[Constant],
        title: str,
        shapes: Sequence[Shape],
    ) -> PlanDetails:
        self.progress(f"planning {title}", 0, 0)
        integers = self.options.integers
        planned = plan_delegate(method, index, both[0], shapes, integers)
        return describe_plan(title, planned, both[1], integers, constants, self.kernels)

    def _constant(
        self, constant: Constant, is_packed: bool, delegate: ExaminedDelegate, place: tuple[int, int]
    ) -> ConstantDetails:
        self.progress("reading constants", *place)
        is_given = constant.key not in delegate.report.constants_missing
        bits = 4 if is_packed and constant.dtype.itemsize == 1 else None
        is_whole = self.options.whole_histograms
        return ConstantDetails(
            key=constant.key,
            type=f"{constant.dtype}{list(constant.shape)}",
            bytes=len(constant.data),
            is_given=is_given,
            histogram=graphs.histogram(constant, is_whole=is_whole, bits=bits) if is_given else None,
        )


def _packed_constants(graph: Graph) -> set[Constant]:
    """The constants of 4-bit operators, two values per byte."""
    arguments = (value for node in graph.nodes if "q4" in node.name for value in node.args)
    return {value.constant for value in arguments if isinstance(value, Tensor) and value.constant is not None}


def _free_dims(method: ExaminedMethod, index: int, graph: Graph) -> list[Sequence[bool] | None]:
    """The dynamic dims of the graph's inputs: those of the method's inputs, else all dims larger than 1."""
    record = method.record
    calls = (call for call in record.instructions if isinstance(call, DelegateCall))
    args = next((call.args for call in calls if call.delegate == index), ())
    known = dict(zip(record.inputs, method.report.inputs, strict=True))
    free: list[Sequence[bool] | None] = []
    for position, value in enumerate(graph.inputs):
        spec = known.get(args[position]) if position < len(args) else None
        any_size = [size > 1 for size in value.shape_max] if isinstance(value, Tensor) else None
        free.append(spec.dynamic if spec else any_size)
    return free


def _instruction(record: MethodRecord, instruction: Instruction) -> InstructionDetails:
    def named(*ids: int) -> str:
        return ", ".join(f"%{id} {describe_record(record.values[id])}" for id in ids)

    match instruction:
        case DelegateCall(delegate, args):
            return InstructionDetails("delegate call", f"delegate {delegate}({named(*args)})", delegate)
        case KernelCall(operator, args):
            return InstructionDetails("host operator", f"{record.operators[operator]}({named(*args)})", None)
        case MoveCall(source, target):
            return InstructionDetails("move", f"%{target} = {named(source)}", None)
        case JumpFalseCall(condition, destination):
            return InstructionDetails("jump", f"to {destination} unless {named(condition)}", None)
        case FreeCall(value):
            return InstructionDetails("free", named(value), None)
