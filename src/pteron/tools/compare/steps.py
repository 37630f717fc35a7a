"""The calls of a plan -> steps: the smallest units whose inputs and outputs can be observed, with their
launches; and a session that runs them one by one.

A step is one call, or several if a join merged the last launch of one with the first of the next, or if one
passes the next a tensor that no node of the graph has. Tensors share memory, so values are read right away:
inputs before a step, outputs after it. Launches, kernels and buffers are those of the plan of plain calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pteron.gpu import Device, Replay, States, submit
from pteron.graph import Constant, Graph, Node, Tensor
from pteron.graph.values import tensors
from pteron.host.tensors import widen_bf16
from pteron.ops import Call, Kind, Operand
from pteron.ops.call import mutated_ids
from pteron.ops.live import affine
from pteron.ops.operand import Slot, State, Weight
from pteron.ops.terms import Symbol
from pteron.plan import Compiled, Plan
from pteron.plan.planner import Planning
from pteron.runtime.outputs import Output, Wanted, allocate_outputs
from pteron.runtime.prerecord import PrerecordedCalls
from pteron.runtime.session import Counters, OutputCheck, Session
from pteron.runtime.staging import Input, live_shapes, live_values, stage, upload
from pteron.tools.graph_structure import leaves

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True)
class Step:
    """Calls that run together, and their launches [first, last)."""

    calls: tuple[Call, ...]
    first: int = 0
    last: int = 0
    left_out: tuple[Node, ...] = ()  # nodes that rewrites made unnecessary for these calls
    kernels: tuple[str, ...] = ()  # of the launches, each once

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        found = {node.index: node for call in self.calls for node in nodes_of(call)}
        found |= {node.index: node for node in self.left_out}
        return tuple(found[index] for index in sorted(found))

    @property
    def signature(self) -> tuple[object, ...]:
        """Differs from a step that other rewrites and joins made."""
        indices = tuple(node.index for node in self.nodes)
        return indices, tuple(call.operator.name for call in self.calls), self.last - self.first

    @property
    def ran(self) -> str:
        return " + ".join(call.operator.name for call in self.calls)

    @property
    def is_on_host(self) -> bool:
        """Whether it only computes live integers."""
        return all(call.operator.kind in (Kind.SCALAR, Kind.SOURCE) for call in self.calls)

    @cached_property
    def reads(self) -> tuple[Tensor, ...]:
        return tuple(dict.fromkeys(tensor for call in self.calls for tensor in call.reads))

    @cached_property
    def reads_besides(self) -> tuple[Tensor, ...]:
        """The tensors that the left-out nodes would read."""
        read = (tensor for node in self.left_out for arg in node.args[:-1] for tensor in tensors(arg))
        return tuple(dict.fromkeys(tensor for tensor in read if tensor not in self.reads))

    @cached_property
    def writes(self) -> tuple[Tensor, ...]:
        return tuple(dict.fromkeys(tensor for call in self.calls for tensor in call.writes))


def nodes_of(call: Call) -> tuple[Node, ...]:
    return call.replaced or (call.node,)


class NoReferenceError(Exception):
    """A step has no reference; the message says why."""


def values_of(graph: Graph) -> set[int]:
    """The ids of the tensors of a graph's nodes; rewrites add others between their calls."""
    return {tensor.id for node in graph.nodes for arg in node.args for tensor in tensors(arg)}


def integers_of(walked: Planning, values: Mapping[int, int]) -> dict[int, int]:
    """The live integers of a call by id, from those that it is given."""
    terms = walked.trace.numbers
    return {**values, **{id: affine(value).evaluate(terms) for id, value in walked.integers.items()}}


def constants_of(compiled: Compiled) -> dict[int, Constant]:
    """The constants that a graph's tensors are, by id."""
    placed = compiled.placement.buffers.items()
    return {id: buffer.constant for id, buffer in placed if isinstance(buffer, Weight)}


def steps_of(graph: Graph, once: Sequence[Call], calls: Sequence[Call], plan: Plan) -> list[Step]:
    """The steps of a plan of these calls: first those that ran once at load, then the others in order."""
    owners: dict[int, list[int]] = defaultdict(list)
    for position, call in enumerate(calls):
        for node in call.nodes:
            owners[node].append(position)
    doing = [sorted({place for node in launch.nodes for place in owners[node]}) for launch in plan.launches]
    together = [(places[0], places[-1]) for places in doing]
    together += _internal_spans(graph, calls)
    left_out = _LeftOut(graph, (*once, *calls))
    steps = [Step((call,), left_out=left_out.by((call,))) for call in once]
    launch = 0
    for start, end in _merged(together, len(calls)):
        first = launch
        while launch < len(doing) and doing[launch][0] <= end:
            launch += 1
        of_step = tuple(calls[start : end + 1])
        kernels = dict.fromkeys(each.module.kernel.name for each in plan.launches[first:launch])
        steps.append(Step(of_step, first, launch, left_out.by(of_step), tuple(kernels)))
    return steps


class _LeftOut:
    """Finds nodes that no call computes any more, from the calls that would have read their outputs."""

    def __init__(self, graph: Graph, calls: Iterable[Call]) -> None:
        # The first node that makes a value: a later one updates it in place.
        self._makers = {value.id: node for node in reversed(graph.nodes) for value in leaves(node.args[-1])}
        self._done = {node.index for call in calls for node in nodes_of(call)}

    def by(self, calls: Iterable[Call]) -> tuple[Node, ...]:
        found: dict[int, Node] = {}
        pending = [node for call in calls for node in nodes_of(call)]
        while pending:
            for value in leaves(*pending.pop().args):
                maker = self._makers.get(value.id)
                if maker is not None and maker.index not in self._done and maker.index not in found:
                    found[maker.index] = maker
                    pending.append(maker)
        return tuple(found.values())


def _internal_spans(graph: Graph, calls: Sequence[Call]) -> Iterable[tuple[int, int]]:
    """From the call that makes a tensor that no node has, to the calls that read it."""
    known = values_of(graph)
    makers: dict[int, int] = {}
    for position, call in enumerate(calls):
        for tensor in call.reads:
            if tensor.id in makers:
                yield makers[tensor.id], position
        for tensor in call.writes:
            if tensor.id not in known and tensor.constant is None:
                makers.setdefault(tensor.id, position)


def _merged(spans: Iterable[tuple[int, int]], count: int) -> Iterable[tuple[int, int]]:
    """Overlapping spans as one, and every other call alone."""
    ends = list(range(count))
    for start, end in spans:
        ends[start] = max(ends[start], end)
    start = end = 0
    for place, reach in enumerate(ends):
        if place > end:
            yield start, end
            start = place
        end = max(end, reach)
    if ends:
        yield start, end


@dataclass(frozen=True)
class StepRecord:
    """A step that ran. Tensors are by id, in the element types of their buffers (bf16 as f32).

    `before` holds its inputs and states; `after` its outputs, `shown` those used outside the step;
    `constants` are read from the file; `integers` are the live integers of the call; `lost` are tensors that
    were overwritten after the step that made them.
    """

    graph: Graph
    step: Step
    before: Mapping[int, Array]
    after: Mapping[int, Array]
    shown: tuple[Tensor, ...]
    constants: Mapping[int, Constant]
    integers: Mapping[int, int]
    shapes: Mapping[int, tuple[int, ...]]
    lost: tuple[Tensor, ...] = ()

    def value(self, tensor: Tensor) -> Array | None:
        """The value of a tensor before the step; None if unknown."""
        if tensor.id in self.before:
            return self.before[tensor.id]
        constant = self.constants.get(tensor.id, tensor.constant)
        if constant is None:
            return None
        array = widen_bf16(constant.numpy(), constant.dtype)
        return array.reshape(self.shapes.get(tensor.id, tensor.shape_max))


Observe: TypeAlias = Callable[[StepRecord, int, int], None]  # a step, its index, the number of steps


class SteppedSession(Session):
    """Runs a graph step by step and passes each to `observe`."""

    def __init__(self, compiled: Compiled, device: Device, observe: Observe) -> None:
        super().__init__(compiled.executable, device, Counters(), compiled)
        self.compiled = compiled
        self.observe = observe

    def run(
        self,
        inputs: Sequence[Input],
        wanted: Sequence[Wanted | None],
        states: States,
        prerecorded: PrerecordedCalls | None = None,
        check: OutputCheck | None = None,
    ) -> list[Output]:
        with self.device.lock:
            self.check_open()
            states.check_open()
            recording, numbers = self.find_recording(inputs)
            plan, values = recording.plan, live_values(self.executable, inputs)
            terms = zip(plan.tape, numbers, strict=True)
            dims = {term.id: number for term, number in terms if isinstance(term, Symbol) and term.is_dim}
            walked = self.compiled.walk(live_shapes(self.executable, inputs), {**values, **dims})
            recording.refresh(numbers)
            staged = stage(self.executable, inputs, plan.indices)
            copies, _ = upload(self.device, staged, lambda port: self.buffer(port, states))
            submit(self.device, copies)
            views = self.outputs(recording, numbers, states)
            outputs, after, _ = allocate_outputs(self.device, self.executable.name, views, wanted)
            if check is not None:
                check(outputs)
            states.invalidate()
            self._run_steps(_TensorReader(self, walked, states, values), plan, recording.replay(states))
            submit(self.device, after)
            return outputs

    def _run_steps(self, reader: _TensorReader, plan: Plan, replay: Replay) -> None:
        """Calls of constants ran at load and their outputs remain: they come first."""
        prepared = self.compiled.prepared
        steps = steps_of(prepared.graph, prepared.once, prepared.each, plan)
        reader.last_reads = {
            tensor.id: index
            for index, step in enumerate(steps)
            for tensor in (*step.reads, *step.reads_besides)
        }
        for index, step in enumerate(steps):
            before, lost = reader.before(step)
            launched = replay.launches[step.first : step.last]
            if launched:
                submit(self.device, [Replay(launched, replay.kept)])
            self.observe(reader.after(index, step, before, lost), index, len(steps))

    def read(self, operand: Operand, states: States) -> Array | None:
        """A tensor at its live shape; None for a constant of the file."""
        buffer = operand.buffer
        if not isinstance(buffer, (Slot, State)):
            return None
        memory = states[buffer] if isinstance(buffer, State) else self._arena[buffer]
        data = self.device.read(memory, int(operand.numel) * operand.storage.itemsize)
        return np.frombuffer(data, operand.storage.numpy).reshape(operand.shape)


class _TensorReader:
    """Reads tensors of one call, and remembers the outputs of earlier steps."""

    def __init__(
        self, session: SteppedSession, walked: Planning, states: States, values: Mapping[int, int]
    ) -> None:
        self.session, self.walked, self.states = session, walked, states
        self.last_reads: dict[int, int] = {}  # the last step that reads a tensor
        self._integers, self._shapes = integers_of(walked, values), walked.plain_shapes
        self._constants = constants_of(session.compiled)
        graph = walked.graph
        mutated = mutated_ids(session.compiled.prepared.calls)
        self._seen_later = {value.id for value in graph.outputs} | mutated
        self._of_nodes = values_of(graph)
        self._left = {
            value.id: array
            for value in graph.inputs
            if isinstance(value, Tensor) and (array := self._read(value)) is not None
        }

    def before(self, step: Step) -> tuple[dict[int, Array], tuple[Tensor, ...]]:
        """The inputs of a step, and those of them that were overwritten since."""
        found: dict[int, Array] = {}
        lost: list[Tensor] = []
        made: set[int] = set()  # by earlier calls of the step
        for call in step.calls:
            for tensor in call.reads:
                array = self._read(tensor) if tensor.id not in made and tensor.id not in found else None
                if array is not None:
                    found[tensor.id] = array
                    if tensor.id in self._left and array.tobytes() != self._left[tensor.id].tobytes():
                        lost.append(tensor)
            made.update(value.id for value in call.outputs if isinstance(value, Tensor))
        for tensor in step.reads_besides:  # their memory may have been reused
            if tensor.id in self._left:
                found.setdefault(tensor.id, self._left[tensor.id])
        return found, tuple(lost)

    def after(
        self, index: int, step: Step, before: Mapping[int, Array], lost: tuple[Tensor, ...]
    ) -> StepRecord:
        alone = len(step.calls) == 1
        visible = [
            tensor
            for tensor in step.writes
            if tensor.id in self._of_nodes
            and (alone or tensor.id in self._seen_later or self.last_reads.get(tensor.id, -1) > index)
        ]
        left = {tensor.id: array for tensor in visible if (array := self._read(tensor)) is not None}
        shown = tuple(tensor for tensor in visible if tensor.id in left)
        self._left |= left
        for tensor in (*step.reads, *step.reads_besides, *step.writes):
            if self.last_reads.get(tensor.id, -1) <= index:
                self._left.pop(tensor.id, None)
        values = self._constants, self._integers, self._shapes
        return StepRecord(self.walked.graph, step, before, left, shown, *values, lost)

    def _read(self, tensor: Tensor) -> Array | None:
        return self.session.read(self.walked.operand(tensor), self.states)
