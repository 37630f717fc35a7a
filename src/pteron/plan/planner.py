"""plan(): walk the calls in order, run each shape rule at the live shapes, collect the dispatches.

Nothing here touches a device, so a resize is simply another plan: no operator has a resize hook, and
because calls are walked in order, none sees one operand resized and the other not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pteron.dtypes import Storage
from pteron.errors import GraphError, MisfitError
from pteron.families.layout.copy import copy_elements
from pteron.graph import Shape, SymInt, Tensor, Value, ValueList
from pteron.ops import Call, Dispatch, Kind, Operand, RequirementError, Scratch
from pteron.ops.live import Affine as AffineExpression
from pteron.ops.live import AnyInt, LiveInt, Symbol, Trace, affine
from pteron.passes import Prepared
from pteron.plan.collect import Collector
from pteron.plan.plan import Plan


def plan(
    prepared: Prepared,
    calls: Iterable[Call],
    shapes: Mapping[int, Shape],
    values: Mapping[int, int],
) -> Plan:
    """The plan of these calls where the graph's inputs have `shapes` and its live integers `values`."""
    planning = _Planning(prepared, Trace(dict(values)), dict(shapes))
    for call in calls:
        planning.add(call)
    return planning.finish()


@dataclass(slots=True)
class _Planning:
    prepared: Prepared
    trace: Trace
    shapes: dict[int, Shape]
    integers: dict[int, AnyInt] = field(default_factory=dict)
    collector: Collector = field(init=False)

    def __post_init__(self) -> None:
        self.collector = Collector(self.prepared.target, self.prepared.placement.size_of)
        for source in self.prepared.sources:
            self.integers[source.symbol] = self._symbol(source.symbol)

    def add(self, call: Call) -> None:
        try:
            self._add(call)
        except RequirementError as error:
            where = f"{self.prepared.graph.name}, node {call.node.index} {call.node.name}"
            live = "".join(f"; live integer %{id} is {value}" for id, value in self.trace.values.items())
            raise MisfitError(f"{where}: {error}{live}", is_certain=not self.trace.decisions) from None

    def finish(self) -> Plan:
        for value in self.prepared.graph.outputs:
            if isinstance(value, Tensor):
                self.shapes.setdefault(value.id, value.shape_max)
        integers = {id: affine(value) for id, value in self.integers.items()}
        return self.collector.finish(self.shapes, integers, self.trace.guards())

    def _symbol(self, id: int) -> LiveInt:
        return LiveInt(AffineExpression(0, ((Symbol(id), 1),)), self.trace)

    def _add(self, call: Call) -> None:
        operator = call.operator
        if operator.kind is Kind.SOURCE:
            return
        inputs = [self._live(call, value) for value in call.inputs]
        if operator.kind is Kind.SCALAR:
            (output,) = call.outputs
            assert isinstance(output, SymInt)
            result: Any = operator.compute(*inputs)
            self.integers[output.id] = result
            return
        outputs = self._outputs(call, inputs)
        targets, copies = self._without_hazards(call, outputs)
        dispatches = [*operator.dispatches(inputs, targets, self.prepared.target), *copies]
        self.collector.add(call.node, dispatches)

    def _live(self, call: Call, value: Value) -> object:
        """A value as operators see it."""
        if isinstance(value, Tensor):
            return self._operand(value)
        if isinstance(value, SymInt):
            if value.id not in self.integers:
                raise GraphError(
                    f"{self.prepared.graph.name}, {call.node} reads {value} before anything computed it"
                )
            return self.integers[value.id]
        if isinstance(value, ValueList):
            return tuple(self._live(call, item) for item in value.items)
        return value

    def _operand(self, tensor: Tensor) -> Operand:
        storage = Storage.of(tensor.dtype, shader_f16=self.prepared.target.shader_f16)
        shape = self.shapes.get(tensor.id, tensor.shape_max)
        return Operand(tensor, shape, storage, self.prepared.placement.buffers[tensor.id])

    def _outputs(self, call: Call, inputs: list[object]) -> list[Operand | None]:
        """The outputs at the shapes that the operator's rule gives them, checked against their maxima."""
        assert call.operator.shape is not None
        result = call.operator.shape(*inputs)
        several = len(call.outputs) > 1 or call.operator.signature.outputs[0].kind == "tensors"
        rules = list(result) if several else [result]
        if len(rules) < len(call.outputs):
            raise RequirementError(f"{len(call.outputs)} outputs, but {len(rules)} shapes")
        outputs: list[Operand | None] = []
        for tensor, rule in zip(call.outputs, rules, strict=False):
            if tensor is None:
                outputs.append(None)
                continue
            assert isinstance(tensor, Tensor)
            shape = tuple(int(size) for size in rule)
            fits = len(shape) == len(tensor.shape_max) and all(
                0 <= live <= most for live, most in zip(shape, tensor.shape_max, strict=True)
            )
            if not fits:
                shown = ", ".join(str(value) for value in inputs if isinstance(value, Operand))
                raise RequirementError(f"output {list(shape)} does not fit into {tensor}; inputs {shown}")
            self.shapes[tensor.id] = shape
            outputs.append(self._operand(tensor))
        return outputs

    def _without_hazards(
        self, call: Call, outputs: list[Operand | None]
    ) -> tuple[list[Operand | None], list[Dispatch]]:
        """WebGPU lets no dispatch read and write one buffer: where an output lies in an input's buffer,
        the operator writes to scratch memory, and a copy brings the result home."""
        read = {self.prepared.placement.buffers[tensor.id] for tensor in call.reads}
        targets, copies = list(outputs), []
        for position, output in enumerate(outputs):
            if output is None or call.operator.is_view or output.buffer not in read:
                continue
            scratch = replace(output, buffer=Scratch(output.numel, output.storage))
            targets[position] = scratch
            copies.append(copy_elements(scratch, output))
        return targets, copies
