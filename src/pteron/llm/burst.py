"""Rows of a step over several sequences, and what steps that were submitted draw for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pteron.gpu import Readback
from pteron.host.tensors import View
from pteron.llm.sampling import Sampler
from pteron.llm.sampling.rows import RowsDrawing
from pteron.llm.submission import Drawn


@dataclass(frozen=True, slots=True)
class Row:
    """A sequence that takes part in a step: its slot, where its next token goes, and the token, on the host
    or on the GPU, unless it was drawn there by the step before. Without a sampler the likeliest token is
    taken; with one, it is drawn as that would draw it from its `step` on. Where that masks, `mask` says what
    may be drawn, in one step."""

    slot: int
    position: int
    token: int | View | None = None
    sampler: Sampler | None = None
    step: int = 0
    mask: npt.NDArray[np.uint32] | None = field(default=None, compare=False)


class BatchSubmission:
    """Steps that were submitted, and what they draw on its way to the host: the rings of all slots, as
    `drawing` reads them."""

    def __init__(self, rows: Sequence[Row], count: int, readback: Readback, drawing: RowsDrawing) -> None:
        self.rows = tuple(rows)
        self.count = count
        self._readback = readback
        self._drawing = drawing
        self._submission = 0
        self._drawn: list[list[Drawn]] | None = None

    def begin(self, submission: int) -> None:
        """It was submitted under this number."""
        self._submission = submission
        self._readback.begin()

    @property
    def is_ready(self) -> bool:
        """Whether reading would wait for nothing."""
        return self._drawn is not None or self._readback.is_ready()

    def read(self) -> list[list[Drawn]]:
        """What every step drew, for each row."""
        if self._drawn is None:
            data = self._readback.peek(0, self._drawing.size, self._submission)
            self._readback.release()
            self._drawn = [self._of(row, data) for row in self.rows]
        return self._drawn

    def _of(self, row: Row, data: bytes) -> list[Drawn]:
        tops = row.sampler.sampling.top_logprobs if row.sampler else 0
        return [
            Drawn(
                *self._drawing.read(data, row.slot, position),
                self._drawing.read_top(data, row.slot, position, tops),
            )
            for position in range(row.position, row.position + self.count)
        ]
