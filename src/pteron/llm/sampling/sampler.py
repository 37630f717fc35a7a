"""Choosing the next token: the settings of a sampler, and the sampler on the GPU."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from pteron.dtypes import DType, Storage
from pteron.errors import InputError
from pteron.gpu import Buffer, Command, Device, Growing, Replay, States
from pteron.graph import Constant, Graph, Node, SymInt, Tensor, ValueList
from pteron.llm.entered import work_on
from pteron.llm.given import integer, number
from pteron.llm.sampling.operator import RING, SAMPLE, SAMPLE_PEAKS
from pteron.ops.operand import State
from pteron.plan import PlanBuffer
from pteron.plan.advance import GROWTHS
from pteron.runtime.session import Session
from pteron.runtime.tensors import View


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. The default is greedy: always the likeliest.

    A temperature above 0 draws from the softmax of logits / temperature, narrowed to the `top_k` likeliest,
    then to the likeliest whose probabilities reach `top_p`, then to those at least `min_p` times as likely
    as the likeliest. `repetition_penalty` above 1 makes tokens less likely that were already there. Equal
    seeds draw equal tokens from equal logits.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("top_k", "seed"):
            object.__setattr__(self, name, integer(name, getattr(self, name)))
        for name in ("temperature", "top_p", "min_p", "repetition_penalty"):
            object.__setattr__(self, name, number(name, getattr(self, name)))
        checks = {
            "temperature must be 0 or more": self.temperature >= 0,
            "top_k must not be negative": self.top_k >= 0,
            "top_p must be above 0 and at most 1": 0 < self.top_p <= 1,
            "min_p must be from 0 to 1": 0 <= self.min_p <= 1,
            "repetition_penalty must be above 0": self.repetition_penalty > 0,
            "seed must be from 0 to 2147483647": 0 <= self.seed < 1 << 31,
        }
        for message, holds in checks.items():
            if not holds:
                raise InputError(f"{message}: {self}")


# Value ids of the sampler's graphs.
_LOGITS, _SEED, _STEPS, _SEEN, _TOKEN, _DRAWN, _RESULTS, _GROWTHS, _WORDS, _PEAKS = range(10)
_Key: TypeAlias = tuple[Device, int, Sampling, DType]


class Sampler:
    """Draws tokens of one text from logits that are on the GPU, and leaves them there.

    What it has drawn and seen is its own; samplers of equal settings share the rest.
    """

    _sessions: ClassVar[WeakValueDictionary[_Key, Session]] = WeakValueDictionary()
    _sessions_of_peaks: ClassVar[WeakValueDictionary[tuple[Device, int], Session]] = WeakValueDictionary()

    def __init__(self, device: Device, vocabulary: int, sampling: Sampling, dtype: DType = DType.F32) -> None:
        self.sampling = sampling
        self._vocabulary = vocabulary
        key = (device, vocabulary, replace(sampling, seed=0), dtype)
        with device.lock, work_on(device):
            session = self._sessions.get(key)
            if session is None:
                session = self._sessions[key] = Session.of(sampler_graph(vocabulary, sampling, dtype), device)
            self._session = session
            self._states = session.states()
        self._steps: int | None = 0  # as the GPU counts them; None: not known
        self._of_peaks: dict[int, tuple[Session, States]] = {}  # by how many blocks there are

    @property
    def token(self) -> View:
        """Where the token lies that was drawn last, unless it was drawn into other memory."""
        return View(self._states[State(_TOKEN)], 0, (1, 1), DType.I32, Storage.I32)

    @property
    def drawn(self) -> Buffer:
        """Where the last tokens lie, with their log-probabilities: RING pairs of words, in turns."""
        return self._states[State(_DRAWN)]

    def drawn_at(self, step: int) -> View:
        """Where the token of a step lies, until RING others were drawn."""
        return View(self.drawn, 8 * (step % RING), (1, 1), DType.I32, Storage.I32)

    @staticmethod
    def read(drawn: bytes, step: int) -> tuple[int, float]:
        """A step's token and its log-probability under the model, from the bytes of `drawn`."""
        token, logprob = struct.unpack_from("<if", drawn, 8 * (step % RING))
        return token, logprob

    def remember(self, tokens: Sequence[int]) -> None:
        """Tokens that the repetition penalty counts as seen, in place of those before."""
        if self.sampling.repetition_penalty == 1.0:
            return
        seen = np.zeros(self._vocabulary, np.uint32)
        seen[[token for token in tokens if 0 <= token < self._vocabulary]] = 1
        device = self._session.device
        with device.lock, work_on(device):
            device.write(self._states[State(_SEEN)], seen)

    def commands(self, logits: View, step: int) -> list[Command]:
        """What draws the token of a step from a row of logits, to be submitted next."""
        self._count(step)
        return self._session.encode((logits, self.sampling.seed), self._states).commands

    def graph(self, logits: View) -> Graph:
        """What `replay` runs for a row of logits."""
        peaks = self._peaks(logits)
        if peaks:
            return graph_of_peaks(peaks.shape[0])
        return sampler_graph(self._vocabulary, self.sampling, logits.dtype)

    def replay(self, logits: View, step: int, token: Buffer, growing: Growing | None = None) -> Replay:
        """What draws tokens from a row of logits where it lies, from that of a step on: one each time that it
        is replayed, to be written to `token`, while `growing` grows. It is to be submitted next."""
        self._count(step)
        places: dict[PlanBuffer, Buffer] = {State(_TOKEN): token}
        if growing:
            places |= {State(_GROWTHS): growing.growths, State(_WORDS): growing.words}
        peaks = self._peaks(logits)
        if peaks:
            session, states = self._drawing_from_peaks(peaks.shape[0])
            own: dict[PlanBuffer, Buffer] = {State(id): self._states[State(id)] for id in (_STEPS, _DRAWN)}
            return session.bound((peaks,), states, own | places)
        return self._session.bound((logits, self.sampling.seed), self._states, places)

    def took(self, steps: int) -> None:
        """So many tokens were drawn by what was submitted; unless told, a sampler does not know."""
        self._steps = steps

    def draw(self, logits: np.ndarray, step: int) -> int:
        """Draw the token of a step from logits of the host; the submission's number."""
        with self._session.device.lock:
            self._count(step)
            submission = self._session.launch((logits.reshape(1, -1), self.sampling.seed), self._states)
            self.took(step + 1)
            return submission

    def _peaks(self, logits: View) -> View | None:
        """The peaks of a row of logits, where they are all that is needed to know the likeliest."""
        is_plain = self.sampling.temperature <= 0 and self.sampling.repetition_penalty == 1.0
        return logits.peaks if is_plain else None

    def _drawing_from_peaks(self, blocks: int) -> tuple[Session, States]:
        if blocks not in self._of_peaks:
            device = self._session.device
            session = self._sessions_of_peaks.get((device, blocks))
            if session is None:
                session = Session.of(graph_of_peaks(blocks), device)
                self._sessions_of_peaks[device, blocks] = session
            self._of_peaks[blocks] = session, session.states()
        return self._of_peaks[blocks]

    def _count(self, step: int) -> None:
        """Have the GPU count from a step on, which noise is made from."""
        if self._steps != step:
            self._session.device.write(self._states[State(_STEPS)], np.array([step], np.int32))
        self._steps = None

    def close(self) -> None:
        """Free what is this sampler's own."""
        with self._session.device.lock:
            self._states.close()
            for _, states in self._of_peaks.values():
                states.close()


def sampler_graph(vocabulary: int, sampling: Sampling, dtype: DType) -> Graph:
    """One call of the sampling operator, over states for what was seen and drawn, and a word that grows by
    nothing."""
    logits, seed = Tensor(_LOGITS, dtype, (1, vocabulary)), SymInt(_SEED)
    seen, steps = _state(_SEEN, DType.BOOL, (vocabulary,)), _state(_STEPS, DType.I32, (1,))
    token, drawn = _state(_TOKEN, DType.I32, (1, 1)), _state(_DRAWN, DType.I32, (RING, 2))
    growths, words = _state(_GROWTHS, DType.I32, (GROWTHS, 2)), _state(_WORDS, DType.I32, (1,))
    arguments = (
        logits,
        seen,
        steps,
        sampling.temperature,
        sampling.top_k,
        sampling.top_p,
        sampling.min_p,
        sampling.repetition_penalty,
        seed,
        growths,
        words,
        ValueList(_RESULTS, (token, drawn)),
    )
    return Graph(
        "sampler",
        (Node(0, SAMPLE, arguments),),
        inputs=(logits, seed),
        outputs=(token, drawn),
        is_internal=True,
    )


def graph_of_peaks(blocks: int) -> Graph:
    """A call that draws the likeliest token from the peaks of so many blocks, over states as above."""
    peaks, steps = Tensor(_PEAKS, DType.I32, (blocks, 4)), _state(_STEPS, DType.I32, (1,))
    token, drawn = _state(_TOKEN, DType.I32, (1, 1)), _state(_DRAWN, DType.I32, (RING, 2))
    growths, words = _state(_GROWTHS, DType.I32, (GROWTHS, 2)), _state(_WORDS, DType.I32, (1,))
    arguments = peaks, steps, growths, words, ValueList(_RESULTS, (token, drawn))
    node = Node(0, SAMPLE_PEAKS, arguments)
    return Graph("peaks", (node,), inputs=(peaks,), outputs=(token, drawn), is_internal=True)


def _state(id: int, dtype: DType, shape: tuple[int, ...]) -> Tensor:
    zeros = memoryview(np.zeros(shape, dtype.numpy).tobytes())
    return Tensor(id, dtype, shape, Constant(f"sampler {id}", dtype, shape, zeros))
