"""What draws the next tokens of rows of logits: the likeliest of all rows at once, then those of samplers.

A row with a sampler of its own has its logits copied to where that looks, and what it draws copied to where
the model looks. Samplers of one form share a session elsewhere; here each slot has its own, since the numbers
of several are to be in one submission.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from pteron.dtypes import DType
from pteron.gpu import Buffer, Command, Copy, Device
from pteron.llm.burst import Burst, Row
from pteron.llm.sampling.form import Form
from pteron.llm.sampling.graphs import sampler_graph
from pteron.llm.sampling.greedy_rows import DRAWN, POSITIONS, TOKENS, greedy_graph
from pteron.ops.operand import State
from pteron.plan import PlanBuffer
from pteron.runtime.session import Session
from pteron.runtime.tensors import View

SESSIONS = 2  # of samplers, that are kept for each slot on average


class RowDraws:
    """Draws tokens by slot, into the words that are given for tokens and positions."""

    def __init__(
        self, device: Device, vocabulary: int, slots: int, dtype: DType, tokens: Buffer, positions: Buffer
    ) -> None:
        self._device = device
        self._vocabulary = vocabulary
        self._dtype = dtype
        self._kept = SESSIONS * slots
        self._tokens = tokens
        self._places: dict[PlanBuffer, Buffer] = {State(TOKENS): tokens, State(POSITIONS): positions}
        self._likeliest = Session.of(greedy_graph(slots, vocabulary, slots, dtype), device)
        self._states = self._likeliest.states()
        self._logits: dict[int, Buffer] = {}  # by slot, of those that had a sampler
        self._sessions: OrderedDict[tuple[int, Form], Session] = OrderedDict()

    def commands(self, logits: View, slots: View, rows: Sequence[Row]) -> list[Command]:
        """What draws a token for each row of logits, to be submitted next, any number of times."""
        commands: list[Command] = [self._likeliest.bound((logits, slots), self._states, self._places)]
        brought: list[Command] = []
        drawn: list[Command] = []
        homes: list[Command] = []
        width = self._vocabulary * logits.storage.itemsize
        for index, row in enumerate(rows):
            if row.sampler is None:
                continue
            own = View(logits.buffer, index * width, (1, self._vocabulary), logits.dtype, logits.storage)
            kept = self._logits_of(row.slot, own)
            brought.append(Copy(own.buffer, kept.buffer, own.nbytes, source_offset=own.offset))
            drawn.append(row.sampler.replay_by(self._session(row.slot, row.sampler.form), kept, row.step))
            homes.append(Copy(row.sampler.token.buffer, self._tokens, 4, target_offset=4 * row.slot))
        return [*commands, *brought, *drawn, *homes]

    def burst(self, rows: Sequence[Row], count: int) -> tuple[Burst, list[Copy]]:
        """Steps that are about to be submitted, and the copies that bring home what they draw."""
        ring = self._states[State(DRAWN)]
        sources = [
            (ring, ring.size),
            *((row.sampler.drawn, row.sampler.drawn_bytes) for row in rows if row.sampler),
        ]
        places, size = [], 0
        for _, length in sources:
            places.append(size)
            size += -(-length // 16) * 16
        readback = self._device.readback(size)
        copies = [
            Copy(source, readback.staging, length, target_offset=place)
            for (source, length), place in zip(sources, places, strict=True)
        ]
        for row in rows:
            if row.sampler:
                row.sampler.took(row.step + count)
        return Burst(rows, count, readback, size, places[1:]), copies

    def _logits_of(self, slot: int, like: View) -> View:
        """Where a slot's sampler finds logits."""
        if slot not in self._logits:
            self._logits[slot] = self._device.create_buffer(like.nbytes, f"logits of slot {slot}")
        return View(self._logits[slot], 0, like.shape, like.dtype, like.storage)

    def close(self) -> None:
        for buffer in self._logits.values():
            self._device.free(buffer)
        self._logits.clear()
        self._states.close()
        self._likeliest.close()
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()

    def _session(self, slot: int, form: Form) -> Session:
        """A session for samplers of a form that is nobody's but the slot's."""
        key = slot, form
        if key not in self._sessions:
            graph = sampler_graph(self._vocabulary, form, self._dtype)
            self._sessions[key] = Session.of(graph, self._device)
            while len(self._sessions) > self._kept:
                self._sessions.popitem(last=False)  # freed with its last user
        self._sessions.move_to_end(key)
        return self._sessions[key]
