"""The sampler on the GPU: draws the tokens of one text, and leaves them there."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import ClassVar, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType, Storage
from pteron.errors import InputError
from pteron.gpu import Buffer, Command, Copy, Device, Growing, Replay, States
from pteron.gpu.tensors import View
from pteron.graph import Graph
from pteron.llm.reentrancy import device_guard
from pteron.llm.sampling.form import Form, numbers
from pteron.llm.sampling.graphs import (
    BIAS,
    DRAWN,
    GROWING,
    MASK,
    SEEN,
    STEPS,
    TOKEN,
    WORDS,
    graph_of_peaks,
    mask_words,
    sampler_graph,
)
from pteron.llm.sampling.operator import RING, pairs_of
from pteron.llm.sampling.recent import Recent
from pteron.llm.sampling.settings import BIAS_MAX, TOPS_MAX, Sampling
from pteron.ops.operand import State
from pteron.plan import PlanBuffer
from pteron.runtime.session import Session

BANNED = np.float32(-3.4028234e38)  # LOWEST in lib/nan.wgsl
SEEN_BEFORE = np.uint32(1 << 31)  # a token that was there before any was drawn
_Key: TypeAlias = tuple[Device, int, Form, DType]


class Sampler:
    """Draws tokens of one text from logits that are on the GPU, and leaves them there.

    What it has drawn and seen is its own; samplers of one form, whose settings differ in numbers alone, share
    the rest, which outlives them in `recent`. One that is `masked` draws the tokens that `allow` names.
    """

    _sessions: ClassVar[WeakValueDictionary[_Key, Session]] = WeakValueDictionary()
    _sessions_of_peaks: ClassVar[WeakValueDictionary[tuple[Device, int], Session]] = WeakValueDictionary()

    def __init__(
        self,
        device: Device,
        vocabulary: int,
        sampling: Sampling,
        dtype: DType = DType.F32,
        *,
        masked: bool = False,
        recent: Recent | None = None,
    ) -> None:
        self.sampling = sampling
        self.form = form = Form.of(sampling, vocabulary, masks=masked)
        self._vocabulary = vocabulary
        self._numbers = numbers(sampling)
        biases = _biases(sampling, vocabulary)
        key = (device, vocabulary, form, dtype)
        with device.lock, device_guard(device):
            session = self._sessions.get(key)
            if session is None:
                session = self._sessions[key] = Session.of(sampler_graph(vocabulary, form, dtype), device)
            self._session = session
            self._recent = Recent() if recent is None else recent
            self._recent.keep(session)
            self._states = session.states()
            if biases is not None:
                device.write(self._states[State(BIAS)], biases)
        self._kept: View | None = None
        self._steps: int | None = 0  # as the GPU counts them; None: not known
        self._of_peaks: dict[int, tuple[Session, States]] = {}  # by how many blocks there are

    @property
    def token(self) -> View:
        """Where the token lies that was drawn last, unless it was drawn into other memory."""
        return View(self._states[State(TOKEN)], 0, (1, 1), DType.I32, Storage.I32)

    @property
    def drawn(self) -> Buffer:
        """Where the last tokens lie, with their log-probabilities: RING pairs of words, in turns. Where lists
        are wanted, that of each follows behind them all."""
        return self._states[State(DRAWN)]

    @property
    def drawn_bytes(self) -> int:
        """How many bytes of `drawn` the host is to read."""
        return 8 * pairs_of(self.form)

    def drawn_at(self, step: int) -> View:
        """Where the token of a step lies, until RING others were drawn."""
        return View(self.drawn, 8 * (step % RING), (1, 1), DType.I32, Storage.I32)

    @staticmethod
    def read(drawn: bytes, step: int) -> tuple[int, float]:
        """A step's token and its log-probability under the model, from the bytes of `drawn`."""
        token, logprob = struct.unpack_from("<if", drawn, 8 * (step % RING))
        return token, logprob

    def read_top(self, drawn: bytes, step: int) -> tuple[tuple[int, float], ...]:
        """The likeliest tokens of a step and their log-probabilities, from the bytes of `drawn`."""
        count = self.sampling.top_logprobs
        if not count:
            return ()
        start = 8 * (RING + TOPS_MAX * (step % RING))
        pairs = struct.iter_unpack("<if", drawn[start : start + 8 * count])
        return tuple((token, logprob) for token, logprob in pairs if token >= 0)

    def remember(self, tokens: Sequence[int]) -> None:
        """Tokens that the repetition penalty counts as seen, in place of those before; none was drawn yet."""
        if not self.form.remembers:
            return
        seen = np.zeros(self._vocabulary, np.uint32)
        if self.form.penalises:
            seen[[token for token in tokens if 0 <= token < self._vocabulary]] = SEEN_BEFORE
        self._write(SEEN, seen)

    def allow(self, mask: npt.NDArray[np.uint32]) -> None:
        """Tokens that the next draw may take: a bit of each, the lowest of a word first. Those that have no
        bit are not allowed."""
        if not self.form.masks:
            raise InputError("this sampler draws without a mask")
        words = np.zeros(mask_words(self._vocabulary), np.uint32)
        given = mask[: words.size]
        words[: given.size] = given
        self._write(MASK, words)

    def keep(self, logits: View) -> Copy:
        """What brings a row of logits to where `kept` lies, for a draw in a later submission."""
        device = self._session.device
        if self._kept is None:
            size = -(-logits.nbytes // 4) * 4
            buffer = device.create_buffer(size, "logits of a sampler")
            self._kept = View(buffer, 0, logits.shape, logits.dtype, logits.storage)
        return Copy(logits.buffer, self._kept.buffer, logits.nbytes, source_offset=logits.offset)

    @property
    def kept(self) -> View:
        """The row of logits that was kept."""
        if self._kept is None:
            raise InputError("this sampler has kept no logits")
        return self._kept

    def commands(self, logits: View, step: int) -> list[Command]:
        """What draws the token of a step from a row of logits, to be submitted next."""
        self._count(step)
        return self._session.encode((logits, *self._numbers), self._states).commands

    def graph(self, logits: View) -> Graph:
        """What `replay` runs for a row of logits."""
        peaks = self._peaks(logits)
        if peaks:
            return graph_of_peaks(peaks.shape[0])
        return sampler_graph(self._vocabulary, self.form, logits.dtype)

    def replay(self, logits: View, step: int, token: Buffer, growing: Growing | None = None) -> Replay:
        """What draws tokens from a row of logits where it lies, from that of a step on: one each time that it
        is replayed, to be written to `token`, while `growing` grows. It is to be submitted next."""
        self._count(step)
        places: dict[PlanBuffer, Buffer] = {State(TOKEN): token}
        if growing:
            places |= {State(GROWING): growing.growths, State(WORDS): growing.words}
        peaks = self._peaks(logits)
        if peaks:
            session, states = self._drawing_from_peaks(peaks.shape[0])
            own: dict[PlanBuffer, Buffer] = {State(id): self._states[State(id)] for id in (STEPS, DRAWN)}
            return session.bound((peaks,), states, own | places)
        return self._session.bound((logits, *self._numbers), self._states, places)

    def state(self, id: int) -> Buffer:
        """Where a state of the sampler's graph lies, by its value id."""
        return self._states[State(id)]

    def set_step(self, step: int) -> None:
        """Note that the submitted draws end before `step`: the GPU has counted them."""
        self._steps = step

    def draw(self, logits: np.ndarray, step: int) -> int:
        """Draw the token of a step from logits of the host; the submission's number."""
        with self._session.device.lock:
            self._count(step)
            submission = self._session.launch((logits.reshape(1, -1), *self._numbers), self._states)
            self.set_step(step + 1)
            return submission

    def _peaks(self, logits: View) -> View | None:
        """The peaks of a row of logits, where they are all that is needed to know the likeliest."""
        return logits.peaks if self.form.is_plain else None

    def _drawing_from_peaks(self, blocks: int) -> tuple[Session, States]:
        if blocks not in self._of_peaks:
            device = self._session.device
            session = self._sessions_of_peaks.get((device, blocks))
            if session is None:
                session = Session.of(graph_of_peaks(blocks), device)
                self._sessions_of_peaks[device, blocks] = session
            self._recent.keep(session)
            self._of_peaks[blocks] = session, session.states()
        return self._of_peaks[blocks]

    def _count(self, step: int) -> None:
        """Have the GPU count from a step on, which noise is made from."""
        if self._steps != step:
            self._session.device.write(self._states[State(STEPS)], np.array([step], np.int32))
        self._steps = None

    def _write(self, id: int, words: npt.NDArray[np.uint32]) -> None:
        device = self._session.device
        with device.lock, device_guard(device):
            device.write(self._states[State(id)], words)

    def close(self) -> None:
        """Free what is this sampler's own."""
        with self._session.device.lock:
            self._states.close()
            if self._kept:
                self._session.device.free(self._kept.buffer)
                self._kept = None
            for _, states in self._of_peaks.values():
                states.close()


def _biases(sampling: Sampling, vocabulary: int) -> npt.NDArray[np.float32] | None:
    """What is added to each logit; None: nothing."""
    if not sampling.biases:
        return None
    added = np.zeros(vocabulary, np.float32)
    for token, bias in sampling.biases:
        if token >= vocabulary:
            raise InputError(f"logit_bias: token {token} is outside the vocabulary of {vocabulary}")
        added[token] = BANNED if bias <= -BIAS_MAX else bias
    return added
