"""A cache of an executable's recorded plans by live shapes, with at most PLANS_KEPT entries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from pteron.errors import ShapeError
from pteron.gpu import Arena, Device, Recording, Weights
from pteron.plan import Compiled, Executable, Plan, Shapes

PLANS_KEPT = 64


class PlanCache:
    """Plans by live shapes. One set of shapes may have several plans; a plan's guards say for which values of
    the live integers it is valid."""

    def __init__(
        self,
        executable: Executable,
        compiled: Compiled | None,
        device: Device,
        arena: Arena,
        weights: Weights,
    ) -> None:
        self._executable = executable
        self._compiled = compiled
        self._device = device
        self._arena = arena
        self._weights = weights
        self._kept: OrderedDict[Shapes, list[Recording]] = OrderedDict()
        self.made = 0

    def find(self, shapes: Shapes, values: Mapping[int, int]) -> tuple[Recording, list[int]]:
        """The recorded plan for these shapes whose guards hold, and the numbers of its live terms. Makes and
        records the plan if the cache does not have it."""
        for recording in self._kept.get(shapes, ()):
            numbers = recording.plan.numbers(values)
            if numbers is not None:
                self._kept.move_to_end(shapes)
                return recording, numbers
        return self.keep(shapes, self._plan(shapes, values), values)

    def keep(self, shapes: Shapes, plan: Plan, values: Mapping[int, int]) -> tuple[Recording, list[int]]:
        """Record a plan and keep it."""
        numbers = plan.numbers(values)
        assert numbers is not None  # it was made for these values
        recording = Recording(self._device, plan, self._arena, self._weights, numbers)
        self.made += 1
        self._kept.setdefault(shapes, []).insert(0, recording)
        self._kept.move_to_end(shapes)
        self._forget_oldest()
        return recording, numbers

    def plans(self) -> dict[Shapes, list[Plan]]:
        """The plans in the cache."""
        return {shapes: [recording.plan for recording in kept] for shapes, kept in self._kept.items()}

    def close(self) -> None:
        for recordings in self._kept.values():
            for recording in recordings:
                recording.close()
        self._kept.clear()

    def _plan(self, shapes: Shapes, values: Mapping[int, int]) -> Plan:
        for plan in self._executable.plans.get(shapes, ()):
            if plan.numbers(values) is not None:
                return plan
        if self._compiled is None:
            known = ", ".join(map(str, self._executable.plans)) or "none"
            raise ShapeError(
                f"{self._executable.name}: no plan for the shapes {shapes}; it has plans for {known}"
            )
        return self._compiled.plan(shapes, values)

    def _forget_oldest(self) -> None:
        while sum(map(len, self._kept.values())) > PLANS_KEPT:
            shapes, recordings = next(iter(self._kept.items()))
            if len(recordings) > 1:
                recordings.pop()  # freed with its last user
            else:
                del self._kept[shapes]
