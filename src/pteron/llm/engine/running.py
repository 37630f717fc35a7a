"""A request at work: its sequence, its sampler, and the text that its tokens become."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from time import perf_counter

import numpy as np
import numpy.typing as npt

from pteron.errors import PteronError
from pteron.llm.engine.grammar_masks import PendingMask
from pteron.llm.engine.job import Job
from pteron.llm.output import Piece, TextAssembler
from pteron.llm.reentrancy import device_guard
from pteron.llm.sequence_pool import Lease
from pteron.llm.submission import Drawn
from pteron.llm.tokenizer import Tokenizer


class RunningRequest:
    """One sequence of an engine, from its first chunk to its end; used by the engine's thread alone.

    `chunks` are what is left to read of the prompt, `step` is how many tokens were asked of the GPU, `drawn`
    those that have arrived, and `under_way` counts the submissions between.
    """

    def __init__(self, job: Job, lease: Lease, tokenizer: Tokenizer, eos_ids: frozenset[int]) -> None:
        request, self.job, self._lease = job.request, job, lease
        self.model, self.user = model, user = lease.model, lease.user
        ids = request.ids
        reused = model.resume(ids, user)
        job.statistics.reused_tokens = reused
        self.chunks = deque(model.chunks(ids[reused:]))
        self.start = len(ids)  # the position of the first new token
        wanted = request.max_new_tokens
        room = model.context - self.start + 1 if model.context else wanted
        stop_ids = eos_ids if request.stop_ids is None else request.stop_ids
        self._telling = TextAssembler(tokenizer, request.stop, stop_ids, wanted, room)
        self.step = 0
        self.under_way = 0
        self.reason = ""  # why it ended
        self._started = perf_counter()
        self.matcher = request.grammar.matcher() if request.grammar else None
        self.mask: PendingMask | None = None  # of what may follow, from when it is asked for until it is used
        self.is_kept = False  # the model has read the last token, and the sampler keeps what to draw from
        self.sampler = model.sampler(request.sampling, masked=self.matcher is not None)
        self.sampler.remember(ids)

    @property
    def drawn(self) -> list[int]:
        """The tokens that have arrived."""
        return self._telling.drawn

    @property
    def count(self) -> int:
        """How many there will be at most."""
        return self._telling.count

    @property
    def is_read(self) -> bool:
        """Whether all of the prompt was submitted."""
        return not self.chunks

    @property
    def submitted(self) -> int:
        """How many tokens of the prompt were: all that is submitted later finds them in the cache."""
        return self.start - sum(map(len, self.chunks))

    @property
    def can_step(self) -> bool:
        """Whether another token can be asked for: by a grammar, once it is known what may follow."""
        return self.step < self.count and (self.matcher is None or bool(self.mask and self.mask.is_done))

    def take_mask(self) -> npt.NDArray[np.uint32]:
        """What may follow, for the next draw; raises what went wrong where that was found out."""
        assert self.mask is not None
        mask, self.mask = self.mask, None
        return mask.get()

    def take(self, drawn: Sequence[Drawn]) -> int:
        """Tokens have arrived: make text of them, up to where it ends; how many that are."""
        statistics, before = self.job.statistics, len(self.drawn)
        now = perf_counter() - self._started
        if not before:
            statistics.prompt_seconds = now
        statistics.decode_seconds = now - statistics.prompt_seconds
        pieces: list[Piece] = []
        for each in drawn:
            if not self.reason:
                if self.matcher:
                    self.matcher.take(each.token)
                is_whole = self.matcher is not None and self.matcher.is_finished
                pieces += self._telling.push(each, is_whole=is_whole)
                self.reason = self._telling.reason
        self._note(before)
        statistics.new_tokens = len(self.drawn)
        if pieces:
            self.job.give(pieces)
        return len(self.drawn) - before

    def _note(self, before: int) -> None:
        """The cache holds all tokens but the last, which may not have been read yet."""
        device = self.model.device
        with device.lock, device_guard(device):
            self.model.check_user(self.user)
            self._note_from(max(0, before - 1))

    def _note_from(self, index: int) -> None:
        for at in range(index, len(self.drawn) - 1):
            self.model.note(self.start + at, self.drawn[at])

    def release(self) -> None:
        """Give the sequence back: what is under way for it comes before all that its next user submits."""
        if self.mask:
            self.mask.is_wanted = False
        with suppress(PteronError):  # the device may be gone
            self.model.settle(self.user)
        self._lease.close()

    def close(self) -> None:
        """Free the sampler's memory, once nothing is under way."""
        with suppress(PteronError):
            self.sampler.close()
