"""What a text that steps by itself submits: chunks of its prompt, steps that stay on the GPU, single draws.

Enters: a model's sequence, its sampler and its user. Leaves: a submission, and the tokens that it draws, once
somebody reads them. Nothing is waited for, but where logits go through the host.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pteron.gpu import Buffer, Command, Copy, Growing, Readback, Replay, submit
from pteron.host.tensors import View
from pteron.llm.model import LanguageModel
from pteron.llm.reentrancy import device_guard
from pteron.llm.sampling import Sampler
from pteron.runtime.outputs import Outputs


@dataclass(frozen=True, slots=True)
class Drawn:
    """A token that was drawn, and its log-probability under the model; `top` are the likeliest tokens with
    theirs, as many as the sampling asks for, the likeliest first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class StepSubmission:
    """Steps of one text that follow one another on the GPU, and the tokens that they draw on their way to the
    host. The device's lock is to be held by whoever asks."""

    sampler: Sampler
    first: int
    count: int
    readback: Readback
    number: int  # of the submission

    @property
    def is_ready(self) -> bool:
        """Whether reading would wait for nothing."""
        return self.readback.is_ready()

    def read(self) -> list[Drawn]:
        """What was drawn, waited for; to be asked once."""
        data = self.readback.peek(0, self.sampler.drawn_bytes, self.number)
        self.readback.release()
        return [_drawn(self.sampler, data, step) for step in range(self.first, self.first + self.count)]


@dataclass(frozen=True, slots=True)
class Submitter:
    """Submits for one text. What is asked for by a user who has lost the sequence to another is refused."""

    model: LanguageModel
    sampler: Sampler
    user: object

    def read(self, chunk: list[int]) -> int:
        """A part of a prompt; the submission's number."""
        model, device = self.model, self.model.device
        with device.lock, device_guard(device):
            model.check_user(self.user)
            return model.launch(chunk)

    def read_and_draw(self, tokens: list[int], step: int) -> StepSubmission:
        """Read tokens, and draw the one of a step after the last of them."""
        model, sampler, device = self.model, self.sampler, self.model.device
        with device.lock, device_guard(device):
            model.check_user(self.user)
            readback, home = self._home()

            def draw(outputs: Outputs) -> list[Command]:
                return [*sampler.commands(_last_row(outputs), step), home]

            return self._began(step, 1, readback, model.launch(tokens, draw))

    def go_on(self, step: int, most: int, token: View | None = None) -> StepSubmission:
        """Draw up to `most` tokens from that of a step on. The first of them follows the one that was drawn
        last, or the one that lies at `token` instead."""
        model, sampler, device = self.model, self.sampler, self.model.device
        with device.lock, device_guard(device):
            model.check_user(self.user)
            readback, home = self._home()

            def draw(logits: View, token: Buffer, growing: Growing | None) -> Replay:
                return sampler.replay(logits, step, token, growing)

            number, count = model.launch_steps(token or sampler.drawn_at(step - 1), most, draw, [home])
            return self._began(step, count, readback, number)

    def read_and_keep(self, tokens: list[int]) -> int:
        """Read tokens, after which a token is drawn later: others may come between model and draw, so the
        sampler keeps the logits for itself. The submission's number."""
        model, sampler, device = self.model, self.sampler, self.model.device

        def keep(outputs: Outputs) -> list[Command]:
            return [sampler.keep(_last_row(outputs))]

        with device.lock, device_guard(device):
            model.check_user(self.user)
            return model.launch(tokens, keep)

    def draw_kept(self, step: int) -> StepSubmission:
        """Draw a step's token from the logits that were kept."""
        sampler, device = self.sampler, self.model.device
        with device.lock, device_guard(device):
            readback, home = self._home()
            number = submit(device, [*sampler.commands(sampler.kept, step), home])
            return self._began(step, 1, readback, number)

    def draw(self, logits: npt.NDArray[np.float32], step: int) -> Drawn:
        """Draw a step's token from logits of the host; waited for."""
        sampler, device = self.sampler, self.model.device
        with device.lock, device_guard(device):
            sampler.draw(logits, step)
            return _drawn(sampler, device.read(sampler.drawn, sampler.drawn_bytes), step)

    def _home(self) -> tuple[Readback, Copy]:
        """Where the host will read what is drawn, and the copy that brings it there."""
        size = self.sampler.drawn_bytes
        readback = self.model.device.readback(size)
        return readback, Copy(self.sampler.drawn, readback.staging, size)

    def _began(self, step: int, count: int, readback: Readback, number: int) -> StepSubmission:
        self.sampler.took(step + count)
        readback.begin()
        return StepSubmission(self.sampler, step, count, readback, number)


def _last_row(outputs: Outputs) -> View:
    """Where the logits after the last token of a call lie."""
    logits = outputs[0]
    assert isinstance(logits, View)
    return logits.last_row()


def _drawn(sampler: Sampler, data: bytes, step: int) -> Drawn:
    """What a step drew, from the bytes of the sampler's ring."""
    return Drawn(*sampler.read(data, step), sampler.read_top(data, step))
