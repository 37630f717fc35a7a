"""Known answers of a plan, made by the float64 references: the player replays the plan on the visitor's
adapter and compares what launches have written.

Inputs are numbers that both sides compute, states have their first values. The nodes of a graph are evaluated
one after the other in float64. An answer is a few elements of a tensor, and how much each may differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from pteron.dtypes import Storage
from pteron.graph import Tensor
from pteron.graph.values import tensors
from pteron.ops.operand import Slot, State
from pteron.plan import Compiled, Executable, IndexRange, Plan, PlanBuffer, Shapes
from pteron.plan.planner import Planning
from pteron.tools.compare.steps import (
    NoReferenceError,
    Step,
    StepRecord,
    constants_of,
    integers_of,
    steps_of,
    values_of,
)
from pteron.tools.doctor.drawing import Array, hashed

Json: TypeAlias = Any
WINDOW = 16  # elements of an answer, at the start and at the end of a tensor
SAME_MAX = 3  # steps of the same kernels that have answers: layers repeat one another
INTEGERS_BELOW = 8  # of integers without a known range
# Parts of a tensor's largest magnitude that a value may differ by: far above rounding, far below what wrong
# kernels give.
_ALLOWED, _ALLOWED_ROUNDED = 5e-4, 5e-2


@dataclass(frozen=True, slots=True)
class Answer:
    """Elements of a buffer after the launches [first, last) of a step, by their places in the plan."""

    first: int
    last: int
    operator: str
    buffer: PlanBuffer
    offset: int  # bytes
    storage: Storage
    values: tuple[float, ...]
    allowed: float


@dataclass(frozen=True, slots=True)
class Check:
    """A plan of an executable, by its place, with its answers."""

    shapes: int
    plan: int
    values: Mapping[int, int]  # of live integers
    # Of each input: integers are below it; 0: floats; None: a live integer, which is 0.
    limits: tuple[int | None, ...]
    answers: tuple[Answer, ...]

    def to_json(self, executable: str, numbers: Mapping[PlanBuffer, int]) -> Json:
        """With the numbers of buffers."""
        return {
            "executable": executable,
            "shapes": self.shapes,
            "plan": self.plan,
            "values": list(self.values.items()),
            "limits": self.limits,
            "answers": [
                [
                    *(each.first, each.last, each.operator, numbers[each.buffer], each.offset),
                    *(str(each.storage), each.allowed, each.values),
                ]
                for each in self.answers
            ],
        }


def checks_of(compiled: Compiled, executable: Executable) -> list[Check]:
    """A check of the first plan for each set of shapes, where live integers are 0. Shapes whose plan only
    launches kernels that were checked before have none."""
    seen: set[str] = set()
    found = []
    for place, (shapes, plans) in enumerate(executable.plans.items()):
        kernels = {launch.module.source for launch in plans[0].launches}
        if kernels <= seen:
            continue
        values = {source.symbol: 0 for source in executable.sources}
        if plans[0].numbers(values) is None:
            continue
        limits = _limits(executable, plans[0].indices)
        answers = tuple(_answers(compiled, shapes, values, plans[0], limits))
        spans = {(answer.first, answer.last) for answer in answers}
        seen |= {launch.module.source for span in spans for launch in plans[0].launches[slice(*span)]}
        found.append(Check(place, 0, values, limits, answers))
    return found


def _limits(executable: Executable, indices: Sequence[IndexRange]) -> tuple[int | None, ...]:
    positions = {position for source in executable.sources for position in source.inputs}
    limits: list[int | None] = []
    for place, port in enumerate(executable.inputs):
        if place in positions or not hasattr(port, "storage"):
            limits.append(None)
        elif port.storage in (Storage.F32, Storage.F16):
            limits.append(0)
        else:
            most = [index.high + 1 for index in indices if index.input == place]
            limits.append(max(1, min(most, default=INTEGERS_BELOW)))
    return tuple(limits)


def _answers(
    compiled: Compiled, shapes: Shapes, values: Mapping[int, int], plan: Plan, limits: Sequence[int | None]
) -> Iterator[Answer]:
    walked = compiled.walk(shapes, values)
    chain = _Chain(compiled, walked, values, shapes, limits)
    prepared = compiled.prepared
    times: Counter[tuple[str, ...]] = Counter()
    for step in steps_of(prepared.graph, prepared.once, prepared.each, plan):
        made = chain.run(step)
        kernels = tuple(launch.module.source for launch in plan.launches[step.first : step.last])
        times[kernels] += 1
        if not kernels or (times[kernels] > SAME_MAX and step.last < len(plan.launches)):
            continue
        for tensor in step.writes:
            operand = walked.operand(tensor)
            if tensor.id in made and isinstance(operand.buffer, (Slot, State)):
                yield from _windows(step, operand.buffer, operand.storage, made[tensor.id])


def _windows(step: Step, buffer: PlanBuffer, storage: Storage, value: Array) -> Iterator[Answer]:
    flat = np.asarray(value).reshape(-1)
    if not flat.size or not np.isfinite(flat.astype(np.float64)).all():
        return
    is_float = storage in (Storage.F32, Storage.F16)
    is_rounded = storage is Storage.F16 or any("q8" in node.name or "8da" in node.name for node in step.nodes)
    largest = float(np.abs(flat).max())
    allowed = (_ALLOWED_ROUNDED if is_rounded else _ALLOWED) * largest if is_float else 0.0
    # The rows of a cache after the first are zeros.
    starts = [0] if isinstance(buffer, State) else sorted({0, max(0, flat.size - WINDOW) // 2 * 2})
    for start in starts:
        values = tuple(float(f"{each:.7g}") for each in flat[start : start + WINDOW])
        yield Answer(
            step.first, step.last, step.ran, buffer, start * storage.itemsize, storage, values, allowed
        )


class _Chain:
    """The values of a graph's tensors in float64, step after step."""

    def __init__(
        self,
        compiled: Compiled,
        walked: Planning,
        values: Mapping[int, int],
        shapes: Shapes,
        limits: Sequence[int | None],
    ) -> None:
        self._graph, self._shapes = walked.graph, walked.plain_shapes
        self._constants, self._integers = constants_of(compiled), integers_of(walked, values)
        self._of_nodes = values_of(walked.graph)
        self._known: dict[int, Array] = {}
        for value, shape, limit in zip(walked.graph.inputs, shapes, limits, strict=True):
            if isinstance(value, Tensor) and shape is not None:
                count = int(np.prod(shape))
                numbers = np.zeros(count, np.int64) if limit is None else hashed(count, limit)
                self._known[value.id] = numbers.reshape(shape)
        for node in walked.graph.nodes:
            for tensor in (each for value in node.args for each in tensors(value)):
                constant = tensor.constant
                if constant is not None and not len(constant.data):  # a KV cache, without its zeros
                    self._known[tensor.id] = np.zeros(constant.shape)

    def run(self, step: Step) -> dict[int, Array]:
        """The tensors that a step writes; none if it has no reference."""
        from pteron.tools.compare.float64 import float64

        before = {
            tensor.id: self._known[tensor.id]
            for tensor in (*step.reads, *step.reads_besides)
            if tensor.id in self._known
        }
        record = StepRecord(self._graph, step, before, {}, (), self._constants, self._integers, self._shapes)
        try:
            found = float64(record)
        except NoReferenceError:
            for tensor in step.writes:  # an earlier value is not theirs any more
                self._known.pop(tensor.id, None)
            return {}
        written = {tensor.id for tensor in step.writes}
        made = {
            id: np.asarray(value)
            for id, value in found.items()
            if id in self._of_nodes and id in written and not isinstance(value, int)
        }
        self._known |= {id: np.asarray(value) for id, value in found.items() if not isinstance(value, int)}
        return made
