"""The sampler of one sequence: draws its tokens on the GPU, and leaves them there."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType, Storage
from pteron.errors import InputError
from pteron.gpu import BorrowedStates, Buffer, Command, Copy, Device, Replay, States, WordIncrements
from pteron.graph import Graph
from pteron.host.tensors import View
from pteron.llm.sampling import graphs
from pteron.llm.sampling.form import RING, ROWS_MAX, Drawn, Form, numbers, read_drawn
from pteron.llm.sampling.settings import BIAS_MAX, Sampling
from pteron.ops.operand import State
from pteron.plan import PlanBuffer
from pteron.runtime.session import Session

SESSIONS_MAX = 16  # each takes the memory of a few rows of logits
BANNED = np.float32(-3.4028234e38)  # LOWEST in lib/nan.wgsl
SEEN_BEFORE = np.uint32(1 << 31)  # a token of the prompt
_Key: TypeAlias = tuple[Device, int, Form, DType, int]


class SamplerSessions:
    """The sessions of a model's samplers, at most SESSIONS_MAX: the next sampler of a form finds its kernels
    compiled."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[_Key, Session] = OrderedDict()
        self.last_rows: RowDraws | None = None  # whose numbers are on the GPU

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, device: Device, size: int, form: Form, dtype: DType, rows: int = 1) -> Session:
        """The session for logits of up to `rows` rows; it draws from the last."""
        key = device, size, form, dtype, rows
        if key not in self._sessions:
            self._sessions[key] = Session.of(graphs.sampler_graph(size, form, dtype, rows), device)
        self._sessions.move_to_end(key)
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return self._sessions[key]

    def clear(self) -> None:
        self._sessions.clear()
        self.last_rows = None


class RowDraws:
    """The draws of one sampler from each row of logits, in one buffer. A draw from row r takes the logits up
    to that row."""

    def __init__(self, session: Session, states: States, logits: View) -> None:
        self.buffer = logits.buffer
        self.replays: list[Replay] = []  # of rows 0, 1, …
        self._logits = logits
        self._session = session
        self._states = BorrowedStates(session.executable, states, session.executable.states)

    def first(self, count: int, numbers: Sequence[int]) -> list[Replay]:
        """The draws from the first rows."""
        for row in range(len(self.replays), count):
            shape = (row + 1, self._logits.shape[-1])
            rows = View(self.buffer, 0, shape, self._logits.dtype, self._logits.storage)
            self.replays.append(self._session.bind_inputs((rows, *numbers), self._states, {}))
        return self.replays[:count]


class Sampler:
    """Draws the tokens of one sequence from logits on the GPU, and leaves them there.

    It owns its draws and token counts. Samplers of one form, whose settings differ only in numbers, share a
    session of `sessions`. A `masked` sampler draws only tokens that `allow` names.
    """

    def __init__(
        self,
        device: Device,
        vocabulary: int,
        sampling: Sampling,
        dtype: DType = DType.F32,
        *,
        masked: bool = False,
        sessions: SamplerSessions | None = None,
    ) -> None:
        self.sampling = sampling
        self.form = form = Form.of(sampling, vocabulary, masked=masked)
        self._vocabulary = vocabulary
        self._key = device, vocabulary, form, dtype
        self._numbers = numbers(sampling)
        biases = _biases(sampling, vocabulary)
        self._sessions = SamplerSessions() if sessions is None else sessions
        with device.lock:
            self._session = self._sessions.find(*self._key)
            self._states = self._session.states()
            if biases is not None:
                device.write(self._states[State(graphs.BIAS)], biases)
        self._kept: View | None = None
        self._steps: int | None = 0  # counted on the GPU; None: unknown
        self._rows: RowDraws | None = None

    @property
    def token(self) -> View:
        """The token drawn last, unless it was drawn into another buffer."""
        return View(self._states[State(graphs.TOKEN)], 0, (1, 1), DType.I32, Storage.I32)

    @property
    def drawn(self) -> Buffer:
        """The last RING draws, pairs of a token and its log-probability, then their lists (`Form.pairs`)."""
        return self._states[State(graphs.DRAWN)]

    @property
    def drawn_bytes(self) -> int:
        return 8 * self.form.pairs

    def drawn_at(self, step: int) -> View:
        """The token of a step on the GPU, until RING more are drawn."""
        return View(self.drawn, 8 * (step % RING), (1, 1), DType.I32, Storage.I32)

    def read(self, drawn: bytes, step: int) -> Drawn:
        """The draw of a step, from the bytes of `drawn`."""
        return read_drawn(drawn, 0, step, self.sampling.top_logprobs)

    def remember(self, tokens: Sequence[int], drawn: Sequence[int] = ()) -> None:
        """Start a sequence whose prompt has these tokens, for the repetition penalty; `drawn` are the tokens
        drawn since."""
        if not self.form.counts_tokens:
            return
        seen = np.bincount(np.array(drawn, np.int64), minlength=self._vocabulary).astype(np.uint32)
        if self.form.has_repetition_penalty:
            seen[[token for token in tokens if 0 <= token < self._vocabulary]] |= SEEN_BEFORE
        self._write(graphs.SEEN, seen)

    def allow(self, mask: npt.NDArray[np.uint32]) -> None:
        """Set the mask of the next draw: a bit for each token, the lowest of a word first. Tokens without a
        bit are not allowed."""
        if not self.form.has_mask:
            raise InputError("this sampler has no mask")
        self._write(graphs.MASK, graphs.to_mask_words(mask, self._vocabulary))

    def keep(self, logits: View) -> Copy:
        """The copy of a row of logits to `kept`, for a draw in a later submission."""
        device = self._session.device
        if self._kept is None:
            size = -(-logits.nbytes // 4) * 4
            buffer = device.create_buffer(size, "logits of a sampler")
            self._kept = View(buffer, 0, logits.shape, logits.dtype, logits.storage)
        return Copy(logits.buffer, self._kept.buffer, logits.nbytes, source_offset=logits.offset)

    @property
    def kept(self) -> View:
        if self._kept is None:
            raise InputError("this sampler has kept no logits")
        return self._kept

    def commands(self, logits: View, step: int) -> list[Command]:
        """The commands that draw the token of a step from a row of logits. They must be submitted next."""
        self._count(step)
        return self._session.encode((logits, *self._numbers), self._states)

    def draw_rows(self, logits: View, step: int, count: int) -> list[Command]:
        """The commands that draw the tokens of `count` steps, from the first rows of logits [rows,
        vocabulary]. They must be submitted next."""
        self._count(step)
        if self._rows is None or self._rows.buffer is not logits.buffer:
            self._rows = RowDraws(self._sessions.find(*self._key, ROWS_MAX), self._states, logits)
        if self._sessions.last_rows is not self._rows:  # another sampler's numbers are on the GPU
            self._rows.replays.clear()
            self._sessions.last_rows = self._rows
        return [*self._rows.first(count, self._numbers)]

    def graph(self, logits: View) -> Graph:
        """The graph that `replay` runs for a row of logits."""
        return graphs.sampler_graph(self._vocabulary, self.form, logits.dtype)

    def replay(self, logits: View, step: int, token: Buffer, growing: WordIncrements | None = None) -> Replay:
        """The commands that draw tokens from a row of logits, from `step` on: one per replay, written to
        `token`, while `growing` advances. They must be submitted next."""
        self._count(step)
        places: dict[PlanBuffer, Buffer] = {State(graphs.TOKEN): token}
        if growing:
            places |= {State(graphs.GROWING): growing.growths, State(graphs.WORDS): growing.words}
        return self._session.bind_inputs((logits, *self._numbers), self._states, places)

    def state(self, id: int) -> Buffer:
        """A state of the sampler's graph, by its value id."""
        return self._states[State(id)]

    def set_step(self, step: int) -> None:
        """Note that the submitted draws end before `step`: the GPU has counted them."""
        self._steps = step

    def draw(self, logits: np.ndarray, step: int) -> int:
        """Draw the token of a step from host logits; returns the submission's number."""
        with self._session.device.lock:
            self._count(step)
            submission = self._session.submit((logits.reshape(1, -1), *self._numbers), self._states)
            self.set_step(step + 1)
            return submission

    def _count(self, step: int) -> None:
        """Set the GPU's step counter, which seeds the noise."""
        if self._steps != step:
            self._session.device.write(self._states[State(graphs.STEPS)], np.array([step], np.int32))
        self._steps = None

    def _write(self, id: int, words: npt.NDArray[np.uint32]) -> None:
        device = self._session.device
        with device.lock:
            device.write(self._states[State(id)], words)

    def close(self) -> None:
        with self._session.device.lock:
            self._states.close()
            if self._kept:
                self._session.device.free(self._kept.buffer)
                self._kept = None


def _biases(sampling: Sampling, vocabulary: int) -> npt.NDArray[np.float32] | None:
    """The bias of each logit; None: no biases."""
    if not sampling.biases:
        return None
    added = np.zeros(vocabulary, np.float32)
    sampling.check_vocabulary(vocabulary)
    for token, bias in sampling.biases:
        added[token] = BANNED if bias <= -BIAS_MAX else bias
    return added
