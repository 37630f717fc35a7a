"""The plans made so far for a delegate, ready to be replayed: found by live shapes, bounded in number."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TypeAlias

from pteron.gpu import Device, Memory, Recording
from pteron.graph import Shape
from pteron.passes import Prepared
from pteron.plan import Plan, plan

PLANS_KEPT = 64

Shapes: TypeAlias = tuple[Shape | None, ...]  # per graph input; None for a SymInt


def plan_at(prepared: Prepared, shapes: Shapes, values: Mapping[int, int]) -> Plan:
    """The plan of a graph at these shapes of its inputs."""
    inputs = zip(prepared.graph.inputs, shapes, strict=True)
    named = {value.id: shape for value, shape in inputs if shape is not None}
    return plan(prepared, prepared.each, named, values)


class PlanCache:
    """Plans by live shapes. Several may be kept for one set of shapes: each holds for other values of the
    live integers, and says so by its guards."""

    def __init__(self, prepared: Prepared, device: Device, memory: Memory) -> None:
        self._prepared = prepared
        self._device = device
        self._memory = memory
        self._kept: OrderedDict[Shapes, list[Recording]] = OrderedDict()
        self.made = 0

    def find(self, shapes: Shapes, values: Mapping[int, int]) -> Recording:
        """The plan for these shapes whose guards hold, made now if there is none."""
        for recording in self._kept.get(shapes, ()):
            if recording.plan.holds(values):
                self._kept.move_to_end(shapes)
                return recording
        return self.keep(shapes, plan_at(self._prepared, shapes, values), values)

    def keep(self, shapes: Shapes, made: Plan, values: Mapping[int, int]) -> Recording:
        """Make a plan ready to be replayed, and keep it."""
        recording = Recording(self._device, made, self._memory, values)
        self.made += 1
        self._kept.setdefault(shapes, []).insert(0, recording)
        self._kept.move_to_end(shapes)
        self._forget_oldest()
        return recording

    def close(self) -> None:
        for recordings in self._kept.values():
            for recording in recordings:
                recording.close()
        self._kept.clear()

    def _forget_oldest(self) -> None:
        while sum(map(len, self._kept.values())) > PLANS_KEPT:
            shapes = next(iter(self._kept))
            self._kept[shapes].pop().close()
            if not self._kept[shapes]:
                del self._kept[shapes]
