"""GPU submissions of language models: prompt chunks, decode steps, single draws.

In: a sequence with its sampler, or rows of a batch. Out: a submission, whose `read` returns the drawn tokens.
`Submitter` submits the commands of one sequence, `llm/batched_model.py` those of a batch. Only `read` and
draws from host logits wait for the GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pteron.gpu import Buffer, Command, Copy, Device, Readback, Replay, WordIncrements, submit
from pteron.host.tensors import View
from pteron.llm.model import LanguageModel
from pteron.llm.reentrancy import device_guard
from pteron.llm.sampling import Drawn, Sampler
from pteron.llm.sampling.batch_sampler import BatchDrawing
from pteron.runtime.outputs import Outputs
from pteron.runtime.session import Then

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

    def read(self) -> list[list[Drawn]]:
        """Wait for the drawn tokens, in a list of one row. To be called once."""
        device_guard(self.device)  # raises in a re-entrant call: a wait inside a submit would not end
        data = self.readback.peek(0, self.sampler.drawn_bytes, self.number)
        self.readback.release()
        return [[self.sampler.read(data, step) for step in range(self.first, self.first + self.count)]]


@dataclass(frozen=True, slots=True)
class Submitter:
    """Submits commands of one sequence. Raises InputError if another user has claimed the sequence."""

    model: LanguageModel
    sampler: Sampler
    user: object

    def prefill(self, tokens: list[int], then: Then | None = None) -> int:
        """Run tokens through the model, and then further commands; returns the submission's number."""
        model, device = self.model, self.model.device
        with device.lock, device_guard(device):
            model.check_user(self.user)
            return model.submit(tokens, then)

    def prefill_and_keep(self, tokens: list[int]) -> int:
        """Run tokens through the model and keep a copy of the logits for `draw_kept`, so that other
        submissions may come in between. Returns the submission's number."""
        return self.prefill(tokens, lambda outputs: [self.sampler.keep(_last_row(outputs))])

    def prefill_and_draw(self, tokens: list[int], step: int) -> StepSubmission:
        """Run tokens through the model, and draw the token of `step` after the last of them."""
        model, sampler, device = self.model, self.sampler, self.model.device
        with device.lock, device_guard(device):
            model.check_user(self.user)
            readback, copy = self._readback()

            def draw(outputs: Outputs) -> list[Command]:
                return [*sampler.commands(_last_row(outputs), step), copy]

            return self._submitted(step, 1, readback, model.submit(tokens, draw))

    def decode(self, step: int, most: int, token: View | None = None) -> StepSubmission:
        """Draw up to `most` tokens from `step` on. The first step reads the token that was drawn last, or the
        one at `token`."""
        model, sampler, device = self.model, self.sampler, self.model.device
        with device.lock, device_guard(device):
            model.check_user(self.user)
            readback, copy = self._readback()

            def draw(logits: View, token: Buffer, growing: WordIncrements | None) -> Replay:
                return sampler.replay(logits, step, token, growing)

            number, count = model.submit_steps(token or sampler.drawn_at(step - 1), most, draw, [copy])
            return self._submitted(step, count, readback, number)

    def draw_kept(self, step: int) -> StepSubmission:
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
            return sampler.read(device.read(sampler.drawn, sampler.drawn_bytes), step)

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


@dataclass(frozen=True, slots=True)
class BatchSubmission:
    """Steps of several sequences in one submission, with the draw rings of all slots."""

    rows: Sequence[BatchRow]
    count: int
    readback: Readback
    drawing: BatchDrawing
    number: int  # of the submission

    def read(self) -> list[list[Drawn]]:
        """Wait for the drawn tokens, row by row. To be called once."""
        data = self.readback.peek(0, self.drawing.size, self.number)
        self.readback.release()
        drawn = []
        for row in self.rows:
            tops = row.sampler.sampling.top_logprobs if row.sampler else 0
            positions = range(row.position, row.position + self.count)
            drawn.append([self.drawing.read(data, row.slot, position, tops) for position in positions])
        return drawn
