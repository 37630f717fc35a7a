"""Rows of a step over several sequences, and what steps that were submitted draw for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pteron.gpu import Readback
from pteron.llm.generate import Drawn, drawn_from
from pteron.llm.sampling import Sampler
from pteron.llm.sampling.operator import RING
from pteron.runtime.tensors import View


@dataclass(frozen=True, slots=True)
class Row:
    """A sequence that takes part in a step: its slot, where its next token goes, and the token, on the host
    or on the GPU, unless it was drawn there by the step before. Without a sampler the likeliest token is
    taken; one of its own draws from its `step` on."""

    slot: int
    position: int
    token: int | View | None = None
    sampler: Sampler | None = None
    step: int = 0


class Burst:
    """Steps that were submitted, and what they draw on its way to the host: the rings of all slots, then
    those of rows with a sampler of their own, at the places given."""

    def __init__(
        self, rows: Sequence[Row], count: int, readback: Readback, size: int, places: Sequence[int]
    ) -> None:
        self.rows = tuple(rows)
        self.count = count
        self._readback = readback
        self._size = size
        self._places = tuple(places)
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
            data = self._readback.peek(0, self._size, self._submission)
            self._readback.release()
            own = iter(self._places)
            self._drawn = [
                self._own(row, data, next(own)) if row.sampler else self._likeliest(row, data)
                for row in self.rows
            ]
        return self._drawn

    def _likeliest(self, row: Row, data: bytes) -> list[Drawn]:
        ring = np.frombuffer(data, np.int32, 2 * RING, 8 * RING * row.slot).reshape(RING, 2)
        places = [(row.position + step) % RING for step in range(self.count)]
        logprobs = ring.view(np.float32)
        return [Drawn(int(ring[place, 0]), float(logprobs[place, 1])) for place in places]

    def _own(self, row: Row, data: bytes, place: int) -> list[Drawn]:
        assert row.sampler is not None
        ring = data[place : place + row.sampler.drawn_bytes]
        return [drawn_from(row.sampler, ring, row.step + step) for step in range(self.count)]
