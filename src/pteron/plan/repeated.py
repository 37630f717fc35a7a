"""Copies that would change nothing, and that a plan does without: their outputs lie where their inputs do.

At the maximum shapes, for which memory is laid out, the last of many rows is a copy. At the live shapes of a
decode step there is one row, which the last one is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pteron.families.layout.copy import moves_nothing
from pteron.graph import Tensor
from pteron.ops import Call, Dispatch, Operand
from pteron.ops.call import mutated_ids
from pteron.ops.operand import BufferRef, Slot
from pteron.passes import Placement, Prepared


@dataclass(frozen=True, slots=True)
class Repeated:
    """Says of a call whether its output can lie in its input's memory until it was last read."""

    prepared: Prepared
    placement: Placement

    def source(self, call: Call, dispatches: Sequence[Dispatch]) -> Slot | None:
        """The memory that holds the output of a call already, and will for as long as anybody reads it."""
        if not len(dispatches) == len(call.outputs) == 1 or not moves_nothing(dispatches[0]):
            return None
        x, (out,) = dispatches[0].bindings["x"], call.outputs
        assert isinstance(x, Operand)
        assert isinstance(out, Tensor)
        if call.operator.is_view or not isinstance(x.buffer, Slot) or call not in self.prepared.each:
            return None  # views that are copied have memory of their own for a reason (passes/placement.py)
        return x.buffer if self._stays(call, x.buffer, out) else None

    def _stays(self, call: Call, source: BufferRef, out: Tensor) -> bool:
        """Whether nobody writes to the source while the output is read, or to the output at all."""
        roots, buffers = self.placement.roots, self.placement.buffers
        root = roots.get(out.id)
        calls = self.prepared.each
        index = calls.index(call)
        seen = [value.id for value in self.prepared.graph.outputs]
        if root is None or any(roots.get(id) == root for id in (*seen, *mutated_ids(calls))):
            return False
        readers = [
            at
            for at, other in enumerate(calls)
            if any(roots.get(tensor.id) == root for tensor in other.reads)
        ]
        between = calls[index + 1 : max(readers, default=index) + 1]
        return not any(buffers[tensor.id] == source for other in between for tensor in other.writes)
