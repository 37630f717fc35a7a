"""What draws the next tokens of rows of logits, and whose text each slot stands at.

What a text has seen lies in its slot while it steps with others, and with its own sampler while it goes on
alone: it is brought from one to the other, on the GPU, when a text comes or goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import ReferenceType, ref

from pteron.dtypes import DType
from pteron.gpu import Buffer, Command, Copy, Device
from pteron.host.tensors import View
from pteron.llm.burst import BatchSubmission, Row
from pteron.llm.sampling import Sampler
from pteron.llm.sampling.rows import RowSampler, RowsDrawing


@dataclass(frozen=True, slots=True)
class _Text:
    """Whom a slot draws for, and the step and position that come next there."""

    sampler: ReferenceType[Sampler] | None  # None: it takes the likeliest
    step: int
    position: int

    def goes_on(self, row: Row) -> bool:
        """Whether a row is the next of it. Of the likeliest, every one is."""
        if self.sampler is None or row.sampler is None:
            return self.sampler is None and row.sampler is None
        return self.sampler() is row.sampler and (self.step, self.position) == (row.step, row.position)


class BatchDraws:
    """Draws tokens by slot, into the words that are given for tokens and positions."""

    def __init__(
        self, device: Device, vocabulary: int, slots: int, dtype: DType, tokens: Buffer, positions: Buffer
    ) -> None:
        self._device = device
        self._tokens, self._positions = tokens, positions
        self._sampler = RowSampler(device, vocabulary, slots, dtype)
        self._texts: dict[int, _Text] = {}  # by slot

    def begin(self, rows: Sequence[Row]) -> list[Command]:
        """What brings over the texts that join, before the next draw. MaskWorkers are written at once."""
        commands: list[Command] = []
        for row in rows:
            text = self._texts.get(row.slot)
            if text is None or not text.goes_on(row):
                self._texts.pop(row.slot, None)  # should this fail, the slot is nobody's
                prompt_tokens = row.position - row.step + 1
                commands += self._sampler.begin(row.slot, row.sampler, prompt_tokens)
            if row.mask is not None:
                self._sampler.allow(row.slot, row.mask)
        return commands

    def drawing(self, logits: View, slots: View, rows: Sequence[Row]) -> RowsDrawing:
        """What draws a token for each row of logits, to be submitted next, any number of times."""
        chosen = [row.slot for row in rows]
        return self._sampler.drawing(logits, slots, chosen, self._tokens, self._positions)

    def burst(self, rows: Sequence[Row], count: int, drawing: RowsDrawing) -> tuple[BatchSubmission, Copy]:
        """Steps that are about to be submitted, and the copy that brings home what they draw."""
        assert count == 1 or all(row.mask is None for row in rows)
        readback = self._device.readback(drawing.size)
        return BatchSubmission(rows, count, readback, drawing), Copy(
            drawing.drawn, readback.staging, drawing.size
        )

    def took(self, rows: Sequence[Row], count: int) -> None:
        """So many steps of these rows were submitted."""
        for row in rows:
            sampler = None if row.sampler is None else ref(row.sampler)
            self._texts[row.slot] = _Text(sampler, row.step + count, row.position + count)

    def leave(self, slot: int, sampler: Sampler) -> list[Command]:
        """What brings back to a sampler what its text has seen in a slot, before it draws alone."""
        text = self._texts.get(slot)
        if text is None or text.sampler is None or text.sampler() is not sampler:
            return []
        del self._texts[slot]
        return self._sampler.leave(slot, sampler)

    def close(self) -> None:
        self._texts.clear()
        self._sampler.close()
