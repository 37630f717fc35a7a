"""A method -> its instructions as text, and the live shapes of its delegates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pteron.errors import PteronError
from pteron.format.records import (
    DelegateCall,
    FreeCall,
    Instruction,
    JumpFalseCall,
    KernelCall,
    MethodRecord,
    MoveCall,
)
from pteron.graph import Graph, Shape, Tensor
from pteron.plan import Compiled, Shapes
from pteron.runtime.checks import describe_record
from pteron.runtime.specs import ValueSpec
from pteron.tools.inputs import LiveSize, live_shapes
from pteron.tools.inspect.page.report import InstructionDetails
from pteron.tools.inspect.program import ExaminedMethod


def live_by_plan(specs: Sequence[ValueSpec], sizes: Sequence[LiveSize]) -> dict[str, list[Shape]]:
    """The input shapes of each plan, by title."""
    if sizes:
        chosen = ", ".join(map(str, sizes))
        return {f"at {chosen}": live_shapes(specs, sizes)}
    plans = {"at the maximum shapes": live_shapes(specs, ())}
    if any(any(spec.dynamic) for spec in specs):
        plans["with every dynamic dim at 1"] = live_shapes(specs, [LiveSize(1)])
    return plans


def free_dims(method: ExaminedMethod, index: int, graph: Graph) -> list[Sequence[bool] | None]:
    """The dynamic dims of the graph's inputs: those of the method's inputs, else all dims larger than 1."""
    record = method.record
    calls = (
        each for each in record.instructions if isinstance(each, DelegateCall) and each.delegate == index
    )
    args = next((call.args for call in calls), ())
    known = dict(zip(record.inputs, method.report.inputs, strict=True))
    free: list[Sequence[bool] | None] = []
    for position, value in enumerate(graph.inputs):
        spec = known.get(args[position]) if position < len(args) else None
        any_size = [size > 1 for size in value.shape_max] if isinstance(value, Tensor) else None
        free.append(spec.dynamic if spec else any_size)
    return free


def delegate_shapes(
    method: ExaminedMethod, index: int, compiled: Compiled, given: Sequence[Shape], integers: int
) -> tuple[Shapes, list[str]]:
    """The shapes of a delegate's inputs for given inputs of the method, and notes on unknown ones."""
    record = method.record
    known: dict[int, Shape] = dict(zip(record.inputs, given, strict=True))
    for instruction in record.instructions:
        if not isinstance(instruction, DelegateCall):
            continue
        called = method.delegates[instruction.delegate].compiled
        if called is None:
            continue
        live, notes = _shapes_of_call(instruction, called, known)
        if instruction.delegate == index:
            return live, notes
        values = {source.symbol: integers for source in called.executable.sources}
        outputs = instruction.args[len(called.prepared.graph.inputs) :]
        try:
            walked = called.shapes(live, values) if not notes else {}
        except PteronError:  # shown with its own plan
            walked = {}
        for id, value in zip(outputs, called.prepared.graph.outputs, strict=False):
            if value.id in walked:
                known[id] = walked[value.id]
    return compiled.shapes_max, ["no instruction calls this delegate"]


def _shapes_of_call(
    call: DelegateCall, compiled: Compiled, known: Mapping[int, Shape]
) -> tuple[Shapes, list[str]]:
    shapes: list[Shape | None] = []
    notes = []
    for position, value in enumerate(compiled.prepared.graph.inputs):
        if not isinstance(value, Tensor):
            shapes.append(None)
            continue
        live = known.get(call.args[position]) if position < len(call.args) else None
        if live is None:
            notes.append(f"input {position} comes from the host: planned at its maximum shape")
        shapes.append(value.shape_max if live is None else live)
    return tuple(shapes), notes


def describe_instruction(record: MethodRecord, instruction: Instruction) -> InstructionDetails:
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
