"""A running request: its sequence, its sampler, and the text of its tokens."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter

import numpy as np
import numpy.typing as npt

from pteron.errors import PteronError
from pteron.llm.cache.pool import Lease
from pteron.llm.cache.sequence import shared_length
from pteron.llm.engine.answer import Job
from pteron.llm.engine.grammar_masks import PendingMask
from pteron.llm.engine.speculation import Speculation, Speculator
from pteron.llm.grammar import Matcher
from pteron.llm.images.prefill import ImagePrefill, RequestImages
from pteron.llm.images.prompt import has_images
from pteron.llm.model import LanguageModel
from pteron.llm.output import Piece, StopStrings
from pteron.llm.sampling import Drawn, Sampler
from pteron.llm.tokenizers.tokenizer import Tokenizer

_log = logging.getLogger(__name__)


class RunningRequest:
    """A request that has a sequence, from its first prompt chunk to its end; used by one thread.

    `chunks` is the part of the prompt that is not submitted yet, `start` the position of the first new token,
    `step` the number of tokens whose draw is submitted, `drawn` the tokens read back, at most `count`, and
    `in_flight` the number of submissions not read back yet. Of `wanted` tokens the context has room for
    `room`. Without a tokenizer there are no pieces and no stop ids.
    """

    def __init__(
        self,
        job: Job,
        model: LanguageModel,
        user: object,
        sampler: Sampler,
        prompt: Sequence[int],
        start: int,
        wanted: int,
        room: int,
        matcher: Matcher | None = None,
        tokenizer: Tokenizer | None = None,
        stop_ids: Container[int] = (),
    ) -> None:
        self.job = job
        self.model = model
        self.user = user
        self.sampler = sampler
        self.chunks = deque(model.chunks(prompt))
        self.start = start
        self.step = 0
        self.in_flight = 0
        self.drawn: list[int] = []
        self.count = min(wanted, room)
        self.reason = ""  # why it ended
        self.matcher = matcher
        self.mask: PendingMask | None = None  # the next mask, from its request to its use
        self.has_logits = False  # the model has read the last token, and the sampler has its logits
        self.host_logits: npt.NDArray[np.float32] | None = None  # of a HostStepper, kept for the next mask
        self.is_in_batch = False  # its last token was drawn by a batch
        self.speculation: Speculation | None = None
        self.images: RequestImages | None = None
        self._is_short = room < wanted
        self._stop_ids, self._stop_strings = stop_ids, StopStrings(job.request.stop)
        self._text = tokenizer.stream() if tokenizer else None
        self._lease: Lease | None = None
        self._started = perf_counter()

    @classmethod
    def begin(
        cls,
        job: Job,
        lease: Lease,
        tokenizer: Tokenizer,
        eos_ids: frozenset[int],
        speculator: Speculator | None = None,
        image_prefill: ImagePrefill | None = None,
    ) -> RunningRequest:
        """Start a request on a leased sequence, after the part of its prompt that the KV cache holds."""
        request, model, ids = job.request, lease.model, job.request.ids
        reused = job.statistics.reused_tokens = job.statistics.read_tokens = model.resume(ids, lease.user)
        wanted = request.max_new_tokens
        room = model.context - len(ids) + 1 if model.context else wanted
        stop_ids = eos_ids if request.stop_ids is None else request.stop_ids
        matcher = request.grammar.matcher() if request.grammar else None
        sampler = model.sampler(request.sampling, masked=matcher is not None)
        sampler.remember(ids)
        prompt = ids[reused:]
        made = cls(
            job, model, lease.user, sampler, prompt, len(ids), wanted, room, matcher, tokenizer, stop_ids
        )
        made._lease = lease
        if request.images and image_prefill:
            made.images = RequestImages(image_prefill, request.images)
            made.drop_read_images()
        is_text = not request.images  # draft models read no images
        if speculator and is_text and request.speculate and request.resident is not False and matcher is None:
            made.speculation = speculator.begin(ids, request.sampling)
        return made

    @property
    def is_prefilled(self) -> bool:
        """Whether the whole prompt is submitted."""
        return not self.chunks

    def take_chunk(self) -> list[int]:
        """The next chunk of the prompt, to be submitted. Before the last one a snapshot is taken: a
        later prompt may share only the beginning of the chunk."""
        chunk = self.chunks.popleft()
        if not self.chunks:
            self.model.take_snapshot(self.user)
        return chunk

    def drop_read_images(self) -> None:
        """Free the images if no chunk is left that has rows of them: the answer may be long."""
        if not any(map(has_images, self.chunks)):
            self.images = None
            self.job.request = replace(self.job.request, images=())

    @property
    def submitted(self) -> int:
        """How many prompt tokens are submitted: later submissions find them in the KV cache."""
        return self.start - sum(map(len, self.chunks))

    @property
    def can_step(self) -> bool:
        """Whether another draw can be submitted; with a grammar, once the next mask is known. Speculation
        continues from tokens that are read back."""
        if self.speculation and self.speculation.until <= self.step != len(self.drawn):
            return False
        return (
            not self.chunks
            and self.step < self.count
            and (self.matcher is None or bool(self.mask and self.mask.is_done))
        )

    @property
    def waits_for_mask(self) -> bool:
        return self.is_prefilled and not self.can_step

    @property
    def has_proposal(self) -> bool:
        """Whether the next step verifies proposed tokens."""
        return bool(self.speculation and self.speculation.proposal)

    @property
    def steps_left(self) -> int:
        """The most steps of the next submission."""
        end = min(self.count, self.speculation.until) if self.speculation else self.count
        return end - self.step

    def propose(self, others: int = 0) -> bool:
        """Make a proposal if that may pay; returns whether the next step verifies proposed tokens. `others`
        is the number of further requests in the batch that the request would step with."""
        speculation = self.speculation
        if speculation is None or not self.drawn or self.step != len(self.drawn):
            return False
        if not speculation.proposal:
            speculation.propose(self.drawn, self.count - self.step - 1, others)
        return self.has_proposal

    def accept(self, drawn: list[Drawn]) -> list[Drawn]:
        """The draws of a verification that continue the text: those that equal the proposal, and the next."""
        assert self.speculation is not None
        proposal, statistics = self.speculation.proposal, self.job.statistics
        accepted = shared_length([each.token for each in drawn], proposal)
        first = self.step - 1
        self.speculation.take(accepted)
        statistics.proposed_tokens += len(proposal)
        statistics.accepted_tokens += accepted
        self.step = first + accepted + 1
        kept = drawn[: accepted + 1]
        self.model.rewind_to(self.start + first + accepted, self.user)
        if accepted < len(proposal):  # draws that were not accepted are not counted
            self.sampler.remember(self.job.request.ids, [*self.drawn, *(each.token for each in kept)])
        return kept

    def take_mask(self) -> npt.NDArray[np.uint32]:
        """Use the mask for the next draw; raises the error if computing it failed."""
        assert self.mask is not None
        mask, self.mask = self.mask, None
        return mask.get()

    def take(self, drawn: Sequence[Drawn]) -> list[Piece]:
        """Accept tokens that were read back, up to where the text ends; returns its new pieces."""
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
                pieces += self._push(each)
        self._record(max(0, before - 1))
        if self.speculation:
            self.speculation.observe(self.drawn)
        statistics.new_tokens, statistics.finish_reason = len(self.drawn), self.reason
        statistics.stop_string = self._stop_strings.found
        return pieces

    def _push(self, drawn: Drawn) -> list[Piece]:
        """Add a token; returns the pieces of text that it completes."""
        self.drawn.append(drawn.token)
        pieces, strings = list[Piece](), self._stop_strings
        is_stop = drawn.token in self._stop_ids
        if self._text and not is_stop:
            text = strings.push(self._text.push(drawn.token))
            pieces.append(Piece(drawn.token, text, drawn.logprob, drawn.top))
        if is_stop or strings.is_stopped or (self.matcher and self.matcher.is_finished):
            self.reason = "stop"
        elif len(self.drawn) == self.count:
            self.reason = "context" if self._is_short else "length"
        if self._text and self.reason and not strings.is_stopped:
            rest = strings.push(self._text.finish()) + strings.finish()
            if rest:
                pieces.append(Piece(drawn.token, rest, 0.0))
        return pieces

    def _record(self, index: int) -> None:
        """Record tokens in the KV cache from `index` on: all but the last, which the model may not have read
        yet."""
        device = self.model.device
        with device.lock:
            self.model.check_user(self.user)
            for at in range(index, len(self.drawn) - 1):
                self.model.record_token(self.start + at, self.drawn[at])

    def release(self) -> None:
        """Return the sequence to the pool. The GPU runs its next user's submissions after those in flight."""
        if self.mask:
            self.mask.is_wanted = False
        if self.speculation:
            with _freeing():
                self.speculation.close()
        with _freeing():
            if self.speculation:
                self.model.rewind_to(self.start + max(0, len(self.drawn) - 1), self.user)
            self.model.rewind(self.user)
        if self._lease:
            self._lease.close()

    def close(self) -> None:
        """Free the sampler, once nothing is in flight."""
        with _freeing():
            self.sampler.close()


@contextmanager
def _freeing() -> Iterator[None]:
    """A request that ends frees what it can. What fails is logged: the others go on."""
    try:
        yield
    except PteronError:  # the device may be lost
        pass
    except Exception:
        _log.exception("a request that ended did not free all that it used")
