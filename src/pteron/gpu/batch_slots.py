"""Batch slots: each state has one buffer, which is divided into one slot per sequence.

A plan for one sequence is bound to that sequence's slot; a plan for the whole batch is bound to the whole
buffer. Both use the same memory, so a sequence can run alone or in a batch without a copy.
"""

from __future__ import annotations

from collections.abc import Iterable
from weakref import finalize

from pteron.errors import DeviceError
from pteron.gpu.device import Device
from pteron.gpu.memory import States
from pteron.ops.operand import State
from pteron.plan import Executable

SLOT_ALIGNMENT = 256  # bytes: every adapter allows bindings at multiples of this


class SequenceSlots:
    """`count` slots, one per sequence. They hold the states `ids` of `executable`. The buffers belong to
    `shared`, which has them under the same ids."""

    def __init__(
        self, device: Device, executable: Executable, shared: States, count: int, ids: Iterable[int]
    ) -> None:
        self.device = device
        self.executable = executable
        self.shared = shared
        self.count = count
        self._free = list(range(count))[::-1]
        self._used: set[int] = set()  # slots that were taken at least once; the others still hold zeros
        self.ids = frozenset(ids)  # not all common ids: rewrites may give one id to two different states

    def take(self) -> SlotStates | None:
        """The states of a new sequence in a free slot; None if no slot is free."""
        return SlotStates(self, self._free.pop()) if self._free and not self.shared.is_closed else None

    @property
    def free(self) -> int:
        """How many slots are free."""
        return len(self._free)

    def begin(self, slot: int) -> None:
        """Clear a slot that another sequence used before."""
        for id in self.ids if slot in self._used else ():
            size = self.executable.states[id].bytes
            self.device.clear(self.shared[State(id)], slot * size, size)
        self._used.add(slot)

    def give_back(self, slot: int) -> None:
        if slot not in self._free:
            self._free.append(slot)


class SlotStates(States):
    """The states of one sequence in its slot; states without a slot have their own buffers."""

    def __init__(self, slots: SequenceSlots, slot: int) -> None:
        self.slot = slot
        self.slots = slots
        self._release = finalize(self, slots.give_back, slot)
        self._release.atexit = False
        slots.begin(slot)
        super().__init__(slots.device, slots.executable)

    @property
    def is_closed(self) -> bool:
        return self._is_closed or self.slots.shared.is_closed

    def check_open(self) -> None:
        super().check_open()
        if self.slots.shared.is_closed:  # submitting commands with a freed buffer would abort the process
            raise DeviceError(f"{self._name}: the batch memory of this sequence is closed")

    def _make(self) -> None:
        own = {id: spec for id, spec in self._specs.items() if id not in self.slots.ids}
        for id, spec in own.items():
            self._create(id, spec)
        for id in self.slots.ids:
            self._buffers[id] = self.slots.shared[State(id)]
            self._starts[id] = self.slot * self._specs[id].bytes

    def close(self) -> None:
        self._is_closed = True
        for id in self.slots.ids:
            self._buffers.pop(id, None)
        super().close()
        self._release()
