"""Copy elision: at some live shapes a copy changes nothing, so its output can use its input's memory.

Memory is laid out for the maximum shapes, where taking the last of many rows is a copy. In a decode step
there is only one row, so the copy is omitted."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

from pteron.families.layout.copy import moves_nothing
from pteron.graph import Tensor
from pteron.ops import Call, Dispatch, Operand
from pteron.ops.call import mutated_ids
from pteron.ops.operand import BufferRef, Slot
from pteron.passes import Placement, Prepared


class CopyElision:
    """Decides whether the output of a call can stay in its input's memory until its last read.

    The facts about the graph are collected once, at the first candidate.
    """

    def __init__(self, prepared: Prepared, placement: Placement) -> None:
        self._prepared = prepared
        self._placement = placement

    def source(self, call: Call, dispatches: Sequence[Dispatch]) -> Slot | None:
        """The memory that already holds the output of a call, and keeps it until its last read; or None."""
        if not len(dispatches) == len(call.outputs) == 1 or not moves_nothing(dispatches[0]):
            return None
        x, (out,) = dispatches[0].bindings["x"], call.outputs
        assert isinstance(x, Operand)
        assert isinstance(out, Tensor)
        if call.operator.is_view or not isinstance(x.buffer, Slot) or call not in self._positions:
            return None  # passes/placement.py copies a view only if it must
        root = self._placement.roots.get(out.id)
        if root is None or root in self._watched:
            return None
        last = self._last_reads.get(root, -1)
        writes = self._writes[x.buffer]
        following = bisect_right(writes, self._positions[call])
        return x.buffer if following == len(writes) or writes[following] > last else None

    def is_read_after(self, call: Call, tensor: Tensor) -> bool:
        """Whether a later call or the caller reads a tensor, or a view of it."""
        last = self.last_read(tensor)
        return last is None or call not in self._positions or last > self._positions[call]

    def last_read(self, tensor: Tensor) -> int | None:
        """The position of the last call that reads a tensor, or a view of it; None: it is read after all."""
        root = self._placement.roots.get(tensor.id)
        return None if root is None or root in self._watched else self._last_reads.get(root, -1)

    @cached_property
    def _positions(self) -> dict[Call, int]:
        return {call: position for position, call in enumerate(self._prepared.each)}

    @cached_property
    def _watched(self) -> set[int | None]:
        """Tensors (roots of views) that are inputs, outputs or states."""
        outputs = {value.id for value in self._prepared.graph.outputs}
        return {self._placement.roots.get(id) for id in outputs | mutated_ids(self._prepared.calls)}

    @cached_property
    def _last_reads(self) -> dict[int | None, int]:
        """The index of the last call that reads a tensor or a view of it."""
        roots = self._placement.roots
        return {
            roots.get(tensor.id): position
            for call, position in self._positions.items()
            for tensor in call.reads
        }

    @cached_property
    def _writes(self) -> dict[BufferRef, list[int]]:
        """The indices of the calls that write to a buffer, in order."""
        found = defaultdict(list)
        for call, position in self._positions.items():
            for tensor in call.writes:
                found[self._placement.buffers[tensor.id]].append(position)
        return found
