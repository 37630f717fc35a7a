"""Calls and live shapes -> plan: run each shape rule in the order of calls, collect the dispatches.

Nothing here touches a device. Live dims stay expressions, so no operator has a resize hook; and because
calls are walked in order, none sees one operand resized and the other not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from pteron.errors import DeviceError, MisfitError, PteronError, ShapeError
from pteron.families.layout.copy import copy_elements
from pteron.graph import Shape, SymInt, Tensor, Value, ValueList
from pteron.ops import (
    AnyInt,
    Call,
    Dispatch,
    Indices,
    Kind,
    Operand,
    RequirementError,
    Target,
    Weight,
    require,
)
from pteron.ops.live import LiveInt, LiveShape, Trace, affine, numel, settled
from pteron.ops.operand import Slot, State
from pteron.ops.requirement import problem_of
from pteron.ops.terms import dim_id
from pteron.passes import Placement, Prepared
from pteron.plan.collect import Collected, Collector
from pteron.plan.copy_elision import CopyElision
from pteron.plan.layers import Layers, Replay
from pteron.plan.plan import IndexRange, Plan
from pteron.plan.repeats import Exchange, Repeats, sizes_of


class Planning:
    """A plan under construction: shapes and live integers after the calls planned so far."""

    def __init__(
        self,
        prepared: Prepared,
        target: Target,
        placement: Placement,
        elision: CopyElision,
        shapes: Mapping[int, Shape],
        values: Mapping[int, int],
        *,
        only_shapes: bool = False,
    ) -> None:
        """A plan whose inputs have these shapes and whose live integers have these values. With
        `only_shapes`, operators check their operands, but no dispatch becomes a launch. Dims that are among
        the values, by `dim_id`, stay expressions: the plan holds for other sizes of them, too."""
        self.graph = prepared.graph
        self.target = target
        self.placement = placement
        self.elision = elision
        self.only_shapes = only_shapes
        self.shapes: dict[int, LiveShape] = dict(shapes)
        self.trace = Trace(dict(values))
        self.collector = Collector(target, prepared.joins)
        self.repeats = Repeats()
        self.indices: list[IndexRange] = []
        self._index_checks = 0
        self.elided: dict[int, Slot] = {}  # buffers of outputs that this plan does not copy
        for value in self.graph.inputs:
            live = shapes.get(value.id)
            if isinstance(value, Tensor) and live is not None:
                if not _fits(live, value):
                    raise ShapeError(f"{self.graph.name}: input {value} cannot be {list(live)}")
                self.shapes[value.id] = self._with_dims(value, live, values)
                self._check_size(f"input {value}", value)
        symbols = (source.symbol for source in prepared.sources if source.symbol in values)
        self.integers: dict[int, AnyInt] = {id: self.trace.symbol(id) for id in symbols}

    def _with_dims(self, value: Tensor, shape: Shape, values: Mapping[int, int]) -> LiveShape:
        """The shape of an input, with the dims that stay expressions; these are neither 0 nor 1."""
        ids = [dim_id(value.id, dim) for dim in range(len(shape))]
        return tuple(
            settled(self.trace.symbol(id, 2, most)) if id in values else size
            for id, size, most in zip(ids, shape, value.shape_max, strict=True)
        )

    def add_all(self, calls: Iterable[Call]) -> None:
        for call in calls:
            self.add(call)

    def add_layers(self, layers: Layers) -> None:
        """Add blocks of calls: one by one until one decides nothing and ends as the block before it ended,
        then repetitions of its launches."""
        launches, number = self.collector.launches, 0
        while number < layers.count:
            start, decided = len(launches), self._decided
            before = launches[-1:]  # which the block may join
            self.add_all(layers.block(number))
            number += 1
            made = launches[max(start - 1, 0) : -1]  # the next block may join the last
            if made and self._decided == decided and layers.ends_alike(number - 1, before, launches[-1:]):
                number = self._repeat(layers, number, made)

    def _repeat(self, layers: Layers, number: int, launches: Sequence[Collected]) -> int:
        """Repeat the launches of the block before this one, up to the first block of other shapes or the end;
        return its number."""
        last, made, new = self.collector.launches.pop(), None, number
        while new < layers.count:
            replay = layers.replay(number - 1, new)
            if not self._take_shapes(replay):
                break
            self.collector.launches.extend(replay.launches(launches))
            made, new = replay, new + 1
        if made is not None:
            exchange = Exchange((self.operand(a), self.operand(b)) for a, b in made.tensors)
            (last,) = made.launches([last._replace(dispatch=exchange.dispatch(last.dispatch))])
            self.collector.rename_scratch(exchange)
        self.collector.launches.append(last)
        return new

    def _take_shapes(self, replay: Replay) -> bool:
        """Give a block's tensors the shapes of those in another, if what they read has like shapes."""
        shapes = self.shapes
        if any(sizes_of(shapes.get(old, ())) != sizes_of(shapes.get(new, ())) for old, new in replay.read):
            return False
        shapes.update({new: shapes[old] for old, new in replay.made if old in shapes})
        return True

    @property
    def _decided(self) -> tuple[int, int, int]:
        """What grows if a call does more than add launches."""
        return self.trace.changes, self._index_checks, len(self.elided)

    def add(self, call: Call) -> None:
        self.trace.node = call.node
        try:
            self._add(call)
        except PteronError:
            raise
        except Exception as error:  # a requirement, or a bug in the operator's functions
            where = f"{self.graph.name}, node {call.node.index} {call.node.name}"
            integers = [item for item in self.trace.values.items() if item[0] >= 0]  # shapes show dims
            live = "".join(f"; live integer %{id} is {value}" for id, value in integers)
            problem, cause = problem_of(error), None if isinstance(error, RequirementError) else error
            certain = not self.trace.decisions
            raise MisfitError(f"{where}: {problem}{live}", is_certain=certain) from cause

    @property
    def plain_shapes(self) -> dict[int, Shape]:
        """The shapes so far, of a plan without live dims."""
        return {id: tuple(map(int, shape)) for id, shape in self.shapes.items()}

    def finish(self) -> Plan:
        shapes, integers = {}, {}
        for value in self.graph.outputs:
            if isinstance(value, Tensor):
                shape = self.shapes.get(value.id, value.shape_max)
                shapes[value.id] = tuple(
                    size.expression if isinstance(size, LiveInt) else size for size in shape
                )
            elif value.id in self.integers:
                integers[value.id] = affine(self.integers[value.id])
        plan = self.collector.finish(shapes, integers, self.trace, tuple(self.indices))
        scratch, most = max(plan.scratch_bytes, default=0), self.target.slot_bytes_max
        if scratch > most:
            raise DeviceError(
                f"{self.graph.name}: a kernel needs scratch memory of {scratch:,} bytes; the adapter allows "
                f"{most:,}"
            )
        return plan

    def _add(self, call: Call) -> None:
        operator = call.operator
        if operator.kind is Kind.SOURCE:
            return
        inputs = [self._live(value) for value in call.inputs]
        if operator.kind is Kind.SCALAR:
            (output,) = call.outputs
            assert isinstance(output, SymInt)
            self.integers[output.id] = operator.compute(*inputs)
            return
        outputs = self._outputs(call, inputs)
        targets, copies = self._without_hazards(call, outputs)
        dispatches: list[Dispatch] = []
        made = operator.dispatches(inputs, targets, self.target)
        for yielded in self.repeats.dispatches(call, inputs, targets, made):
            if isinstance(yielded, Dispatch):
                dispatches.append(yielded)
            else:
                self._check_indices(yielded, call)
        source = self.elision.source(call, dispatches) if not copies else None
        if source is not None:
            self.elided[call.writes[0].id] = source
        elif not self.only_shapes:
            is_read = partial(self._is_read_after, call)
            self.collector.add(call.node, [*dispatches, *copies], is_read, call.nodes)

    def _is_read_after(self, call: Call, operand: Operand) -> bool:
        """Whether a later call reads a tensor's memory, as that tensor or as an elided copy of it."""
        is_elided = operand.buffer in self.elided.values()
        return is_elided or self.elision.is_read_after(call, operand.tensor)

    def _check_indices(self, indices: Indices, call: Call) -> None:
        """Check the range of indices: of a constant now, of an input at every call."""
        self._index_checks += 1
        if isinstance(indices.operand.buffer, Weight):
            elements = indices.operand.buffer.constant.numpy()
            for index in (int(elements.min()), int(elements.max())) if elements.size else ():
                inside = indices.low <= index <= indices.high
                require(inside, f"index {index} is outside {indices.low} to {indices.high}", indices.operand)
        origin = self.placement.roots.get(indices.operand.tensor.id)
        for position, value in enumerate(self.graph.inputs):
            if value.id == origin:
                self.indices.append(IndexRange(position, int(indices.low), int(indices.high), call.node.name))

    def _live(self, value: Value) -> object:
        """A value as operators see it."""
        if isinstance(value, Tensor):
            return self.operand(value)
        if isinstance(value, SymInt):
            return self.integers[value.id]
        if isinstance(value, ValueList):
            return tuple(self._live(item) for item in value.items)
        return value

    def operand(self, tensor: Tensor) -> Operand:
        """A tensor at its live shape, in its buffer of this plan."""
        shape = self.shapes.get(tensor.id, tensor.shape_max)
        root = self.placement.roots.get(tensor.id, tensor.id)
        buffer = self.elided.get(root, self.placement.buffers[tensor.id])
        return Operand(tensor, shape, self.target.storage(tensor.dtype), buffer)

    def _outputs(self, call: Call, inputs: list[object]) -> list[Operand | None]:
        """The outputs at the shapes of the operator's rule, checked against their maximum shapes."""
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
            shape = tuple(map(settled, rule))
            if not _fits(shape, tensor):
                shown = ", ".join(str(value) for value in inputs if isinstance(value, Operand))
                raise RequirementError(f"output {list(shape)} does not fit into {tensor}; inputs {shown}")
            if isinstance(self.placement.buffers[tensor.id], State) and shape != tensor.shape_max:
                raise RequirementError(f"the state {tensor} is written as {list(shape)}")
            self.shapes[tensor.id] = shape
            self._check_size(f"node {call.node.index} {call.node.name}", tensor)
            outputs.append(self.operand(tensor))
        return outputs

    def _check_size(self, where: str, tensor: Tensor) -> None:
        """Raise a DeviceError if a tensor exceeds what the device binds at its live shape. Slots are no
        larger than that, whatever the maximum shapes need."""
        size, most = self.target.storage(tensor.dtype).itemsize, self.target.slot_bytes_max
        if self.only_shapes or numel(tensor.shape_max) * size <= most:
            return
        needed = numel(self.shapes[tensor.id]) * size
        if isinstance(self.placement.buffers[tensor.id], Slot) and needed > most:
            raise DeviceError(
                f"{self.graph.name}, {where}: {self.operand(tensor)} needs a buffer of {int(needed):,} "
                f"bytes; the adapter allows {most:,}"
            )

    def _without_hazards(
        self, call: Call, outputs: list[Operand | None]
    ) -> tuple[list[Operand | None], list[Dispatch]]:
        """In WebGPU no dispatch may read and write one buffer. If an output shares an input's buffer, the
        operator writes to scratch memory, and a copy follows."""
        read = {self.placement.buffers[tensor.id] for tensor in call.reads}
        targets, copies = list(outputs), []
        for position, output in enumerate(outputs):
            if output is None or call.operator.is_view or output.buffer not in read:
                continue
            scratch = output.scratch()
            targets[position] = scratch
            copies.append(copy_elements(scratch, output))
        return targets, copies


def _fits(shape: LiveShape, tensor: Tensor) -> bool:
    """Whether a live shape is within a tensor's maximum."""
    return len(shape) == len(tensor.shape_max) and all(
        0 <= live <= most for live, most in zip(shape, tensor.shape_max, strict=True)
    )
