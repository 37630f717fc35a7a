"""GPU submissions of language models: prompt chunks, decode steps, single draws.

In: a sequence with its sampler, or rows of a batch. Out: a submission, whose `read` returns the drawn tokens.
`Submitter` submits the commands of one sequence. `BatchDraws` makes the draw commands of a batch;
`llm/batched_model.py` makes the batch's model commands. Only `read` and draws from host logits wait for the
GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import ReferenceType, ref

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType
from pteron.gpu import Buffer, Command, Copy, Device, Readback, Replay, WordIncrements, submit
from pteron.host.tensors import View
from pteron.llm.model import LanguageModel
from pteron.llm.reentrancy import device_guard
from pteron.llm.sampling import Sampler
from pteron.llm.sampling.batch_sampler import BatchDrawing, BatchSampler
from pteron.runtime.outputs import Outputs


@dataclass(frozen=True, slots=True)
class Drawn:
    """A drawn token and its log-probability under the model. `top` has the `Sampling.top_logprobs` likeliest
    tokens and their log-probabilities, likeliest first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


# One sequence --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepSubmission:
    """Steps of one sequence in one submission. The caller holds the device lock."""

    device: Device
    sampler: Sampler
    first: int  # step
    count: int
    readback: Readback
    number: int  # of the submission

    @property
    def is_ready(self) -> bool:
        """Whether `read` returns without waiting."""
        return self.readback.is_ready()

    def read(self) -> list[Drawn]:
        """Wait for the drawn tokens. To be called once."""
        device_guard(self.device)  # raises in a re-entrant call: a wait inside a submit would not end
        data = self.readback.peek(0, self.sampler.drawn_bytes, self.number)
        self.readback.release()
        return [_drawn(self.sampler, data, step) for step in range(self.first, self.first + self.count)]


@dataclass(frozen=True, slots=True)
class Submitter:
    """Submits commands of one sequence. Raises InputError if another user has claimed the sequence."""

    model: LanguageModel
    sampler: Sampler
    user: object

    def read(self, chunk: list[int]) -> int:
        """Prefill a chunk of the prompt; returns the submission's number."""
        model, device = self.model, self.model.device
        with device.lock, device_guard(device):
            model.check_user(self.user)
            return model.launch(chunk)

    def read_and_draw(self, tokens: list[int], step: int) -> StepSubmission:
        """Prefill tokens, and draw the token of `step` after the last of them."""
        model, sampler, device = self.model, self.sampler, self.model.device
        with device.lock, device_guard(device):
            model.check_user(self.user)
            readback, copy = self._readback()

            def draw(outputs: Outputs) -> list[Command]:
                return [*sampler.commands(_last_row(outputs), step), copy]

            return self._submitted(step, 1, readback, model.launch(tokens, draw))

    def decode(self, step: int, most: int, token: View | None = None) -> StepSubmission:
        """Draw up to `most` tokens from `step` on. The first step reads the token that was drawn last, or the
        one at `token`."""
        model, sampler, device = self.model, self.sampler, self.model.device
        with device.lock, device_guard(device):
            model.check_user(self.user)
            readback, copy = self._readback()

            def draw(logits: View, token: Buffer, growing: WordIncrements | None) -> Replay:
                return sampler.replay(logits, step, token, growing)

            number, count = model.launch_steps(token or sampler.drawn_at(step - 1), most, draw, [copy])
            return self._submitted(step, count, readback, number)

    def read_and_keep(self, tokens: list[int]) -> int:
        """Run tokens through the model and keep a copy of the logits for `draw_kept`, so that other
        submissions may come in between. Returns the submission's number."""
        model, sampler, device = self.model, self.sampler, self.model.device

        def keep(outputs: Outputs) -> list[Command]:
            return [sampler.keep(_last_row(outputs))]

        with device.lock, device_guard(device):
            model.check_user(self.user)
            return model.launch(tokens, keep)

    def draw_kept(self, step: int) -> StepSubmission:
        """Draw the token of a step from the kept logits."""
        sampler, device = self.sampler, self.model.device
        with device.lock, device_guard(device):
            readback, copy = self._readback()
            number = submit(device, [*sampler.commands(sampler.kept, step), copy])
            return self._submitted(step, 1, readback, number)

    def draw(self, logits: npt.NDArray[np.float32], step: int) -> Drawn:
        """Draw the token of a step from host logits, and wait for it."""
        sampler, device = self.sampler, self.model.device
        with device.lock, device_guard(device):
            sampler.draw(logits, step)
            return _drawn(sampler, device.read(sampler.drawn, sampler.drawn_bytes), step)

    def _readback(self) -> tuple[Readback, Copy]:
        """A staging buffer for the drawn tokens, and the copy that fills it."""
        size = self.sampler.drawn_bytes
        readback = self.model.device.readback(size)
        return readback, Copy(self.sampler.drawn, readback.staging, size)

    def _submitted(self, step: int, count: int, readback: Readback, number: int) -> StepSubmission:
        self.sampler.set_step(step + count)
        readback.begin()
        return StepSubmission(self.model.device, self.sampler, step, count, readback, number)


def _last_row(outputs: Outputs) -> View:
    """The logits after the last token of a call."""
    logits = outputs[0]
    assert isinstance(logits, View)
    return logits.last_row()


def _drawn(sampler: Sampler, data: bytes, step: int) -> Drawn:
    """The draw of a step, from the bytes of the sampler's ring."""
    return Drawn(*sampler.read(data, step), sampler.read_top(data, step))


# A batch -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A sequence in a batched step: its slot, the position of its next token, and that token, on the host or
    on the GPU (None: the token that the previous step drew in this slot). Without a sampler the step takes
    the likeliest token; with one, it draws the tokens that the sampler would draw from `step` on. A sampler
    with masks draws only tokens that `mask` allows, and only for one step."""

    slot: int
    position: int
    token: int | View | None = None
    sampler: Sampler | None = None
    step: int = 0
    mask: npt.NDArray[np.uint32] | None = field(default=None, compare=False)


class BatchSubmission:
    """Steps of several sequences in one submission, with the draw rings of all slots."""

    def __init__(
        self, rows: Sequence[BatchRow], count: int, readback: Readback, drawing: BatchDrawing
    ) -> None:
        self.rows = tuple(rows)
        self.count = count
        self._readback = readback
        self._drawing = drawing
        self._number = 0  # of the submission
        self._drawn: list[list[Drawn]] | None = None

    def begin(self, number: int) -> None:
        """Start the readback of submission `number`."""
        self._number = number
        self._readback.begin()

    @property
    def is_ready(self) -> bool:
        """Whether `read` returns without waiting."""
        return self._drawn is not None or self._readback.is_ready()

    def read(self) -> list[list[Drawn]]:
        """Wait for the drawn tokens, row by row."""
        if self._drawn is None:
            data = self._readback.peek(0, self._drawing.size, self._number)
            self._readback.release()
            self._drawn = [self._of(row, data) for row in self.rows]
        return self._drawn

    def _of(self, row: BatchRow, data: bytes) -> list[Drawn]:
        tops = row.sampler.sampling.top_logprobs if row.sampler else 0
        return [
            Drawn(
                *self._drawing.read(data, row.slot, position),
                self._drawing.read_top(data, row.slot, position, tops),
            )
            for position in range(row.position, row.position + self.count)
        ]


@dataclass(frozen=True, slots=True)
class _SlotState:
    """The sampler that a slot draws for, and its next step and position."""

    sampler: ReferenceType[Sampler] | None  # None: greedy
    step: int
    position: int

    def continues_with(self, row: BatchRow) -> bool:
        """Whether a row is the next step of this slot's sequence. Greedy rows keep no state."""
        if self.sampler is None or row.sampler is None:
            return self.sampler is None and row.sampler is None
        return self.sampler() is row.sampler and (self.step, self.position) == (row.step, row.position)


class BatchDraws:
    """Draws the next token of each slot, into the given buffers for tokens and positions.

    The token counts of a sequence (for penalties) are in its slot while it steps in a batch, and in its own
    sampler while it steps alone. They are copied on the GPU when a sequence joins or leaves the batch.
    """

    def __init__(
        self, device: Device, vocabulary: int, slots: int, dtype: DType, tokens: Buffer, positions: Buffer
    ) -> None:
        self._device = device
        self._tokens, self._positions = tokens, positions
        self._sampler = BatchSampler(device, vocabulary, slots, dtype)
        self._slots: dict[int, _SlotState] = {}

    def begin(self, rows: Sequence[BatchRow]) -> list[Command]:
        """The commands that copy the state of joining sequences, before the next draw. Masks are written at
        once."""
        commands: list[Command] = []
        for row in rows:
            state = self._slots.get(row.slot)
            if state is None or not state.continues_with(row):
                self._slots.pop(row.slot, None)  # if `begin` fails, the slot's state is unknown
                prompt_tokens = row.position - row.step + 1
                commands += self._sampler.begin(row.slot, row.sampler, prompt_tokens)
            if row.mask is not None:
                self._sampler.allow(row.slot, row.mask)
        return commands

    def drawing(self, logits: View, slots: View, rows: Sequence[BatchRow]) -> BatchDrawing:
        """The commands that draw one token for each row of logits per replay. No other submission may come
        before them."""
        chosen = [row.slot for row in rows]
        return self._sampler.drawing(logits, slots, chosen, self._tokens, self._positions)

    def submission(
        self, rows: Sequence[BatchRow], count: int, drawing: BatchDrawing
    ) -> tuple[BatchSubmission, Copy]:
        """A submission of `count` steps, and the copy that reads its tokens back."""
        assert count == 1 or all(row.mask is None for row in rows)
        readback = self._device.readback(drawing.size)
        copy = Copy(drawing.drawn, readback.staging, drawing.size)
        return BatchSubmission(rows, count, readback, drawing), copy

    def advance(self, rows: Sequence[BatchRow], count: int) -> None:
        """Record that `count` steps of these rows were submitted."""
        for row in rows:
            sampler = None if row.sampler is None else ref(row.sampler)
            self._slots[row.slot] = _SlotState(sampler, row.step + count, row.position + count)

    def leave(self, slot: int, sampler: Sampler) -> list[Command]:
        """The commands that copy a slot's token counts back to its sampler, before it draws alone."""
        state = self._slots.get(slot)
        if state is None or state.sampler is None or state.sampler() is not sampler:
            return []
        del self._slots[slot]
        return self._sampler.leave(slot, sampler)

    def close(self) -> None:
        self._slots.clear()
        self._sampler.close()
