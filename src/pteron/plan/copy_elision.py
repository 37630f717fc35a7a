"""Copies that would change nothing, and that a plan does without: their outputs lie where their inputs do.

At the maximum shapes, for which memory is laid out, the last of many rows is a copy. At the live shapes of a
decode step there is one row, which the last one is.
"""

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
    """Says of the calls of every run whether an output can lie in its input's memory until it was last read.

    What it knows of a graph it gathers once, when the first such copy is met.
    """

    def __init__(self, prepared: Prepared, placement: Placement) -> None:
        self._prepared = prepared
        self._placement = placement

    def source(self, call: Call, dispatches: Sequence[Dispatch]) -> Slot | None:
        """The memory that holds the output of a call already, and will for as long as anybody reads it."""
        if not len(dispatches) == len(call.outputs) == 1 or not moves_nothing(dispatches[0]):
            return None
        x, (out,) = dispatches[0].bindings["x"], call.outputs
        assert isinstance(x, Operand)
        assert isinstance(out, Tensor)
        if call.operator.is_view or not isinstance(x.buffer, Slot) or call not in self._positions:
            return None  # views that are copied have memory of their own for a reason (passes/placement.py)
        root = self._placement.roots.get(out.id)
        if root is None or root in self._watched:
            return None
        last = self._last_reads.get(root, -1)
        writes = self._writes[x.buffer]
        following = bisect_right(writes, self._positions[call])
        return x.buffer if following == len(writes) or writes[following] > last else None

    def is_read_after(self, call: Call, tensor: Tensor) -> bool:
        """Whether anybody sees a tensor, or a view of it, once a call is done."""
        root = self._placement.roots.get(tensor.id)
        if root is None or root in self._watched or call not in self._positions:
            return True
        return self._last_reads.get(root, -1) > self._positions[call]

    @cached_property
    def _positions(self) -> dict[Call, int]:
        return {call: position for position, call in enumerate(self._prepared.each)}

    @cached_property
    def _watched(self) -> set[int | None]:
        """Tensors, by those that views of them live in, that others see or change."""
        outputs = {value.id for value in self._prepared.graph.outputs}
        return {self._placement.roots.get(id) for id in outputs | mutated_ids(self._prepared.calls)}

    @cached_property
    def _last_reads(self) -> dict[int | None, int]:
        """Where a tensor, or a view of it, is read last."""
        roots = self._placement.roots
        return {
            roots.get(tensor.id): position
            for call, position in self._positions.items()
            for tensor in call.reads
        }

    @cached_property
    def _writes(self) -> dict[BufferRef, list[int]]:
        """Where memory is written, in order."""
        found = defaultdict(list)
        for call, position in self._positions.items():
            for tensor in call.writes:
                found[self._placement.buffers[tensor.id]].append(position)
        return found
