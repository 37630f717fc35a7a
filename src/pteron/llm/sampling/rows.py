"""The sampler of several texts on the GPU: logits [rows, vocabulary] -> the next token of each row's text.

Texts lie in slots. What each is drawn by is written to its slot once, when it begins; rows of any settings
then share a launch, and nothing is compiled but once for each form, which is what any of them needs.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType
from pteron.errors import InputError
from pteron.gpu import Buffer, Command, Copy, Device, Replay, States
from pteron.graph import Constant, Graph, Node, Tensor
from pteron.host.tensors import View
from pteron.llm.sampling.form import Form, numbers
from pteron.llm.sampling.graphs import BIAS as ONE_BIAS
from pteron.llm.sampling.graphs import SEEN as ONE_SEEN
from pteron.llm.sampling.graphs import mask_words
from pteron.llm.sampling.operator import RING, pairs_of
from pteron.llm.sampling.rows_operator import SAMPLE_ROWS
from pteron.llm.sampling.sampler import Sampler
from pteron.llm.sampling.settings import TOPS_MAX, Sampling
from pteron.llm.sampling.texts import DRAWS, FIRST, SETTINGS
from pteron.ops.operand import State
from pteron.plan import PlanBuffer
from pteron.runtime.session import Session

FORMS_MAX = 8  # that are kept compiled
# Value ids of the graph.
LOGITS, SLOTS, NUMBERS, SEEN, BIAS, MASK, TOKENS, POSITIONS, DRAWN = range(9)


@dataclass(frozen=True, slots=True)
class RowsDrawing:
    """What draws a token for each row, each time that it is replayed, and how the ring that it leaves is
    read: `size` bytes of `drawn`."""

    replay: Replay
    drawn: Buffer
    form: Form
    slot_count: int

    @property
    def size(self) -> int:
        return 8 * pairs_of(self.form) * self.slot_count

    def read(self, data: bytes, slot: int, position: int) -> tuple[int, float]:
        """The token that followed the one at a position, and its log-probability under the model."""
        token, logprob = struct.unpack_from("<if", data, self._start(slot) + 8 * (position % RING))
        return token, logprob

    def read_top(self, data: bytes, slot: int, position: int, count: int) -> tuple[tuple[int, float], ...]:
        """The likeliest tokens there, and their log-probabilities."""
        if not count:
            return ()
        start = self._start(slot) + 8 * (RING + TOPS_MAX * (position % RING))
        pairs = struct.iter_unpack("<if", data[start : start + 8 * count])
        return tuple((token, logprob) for token, logprob in pairs if token >= 0)

    def _start(self, slot: int) -> int:
        return 8 * pairs_of(self.form) * slot


class _Elsewhere(States):
    """The states of a session that other memory stands in for, all that any launch looks at: forms have no
    memory of their own for them."""

    def _make(self) -> None:
        pass


class RowSampler:
    """Draws the next tokens of the texts in `slots` slots, and leaves them on the GPU."""

    def __init__(self, device: Device, vocabulary: int, slots: int, dtype: DType = DType.F32) -> None:
        self._device, self._vocabulary, self._slots, self._dtype = device, vocabulary, slots, dtype
        self._forms: dict[int, Form] = {}  # of the texts that have begun
        self._sessions: OrderedDict[Form, tuple[Session, States]] = OrderedDict()
        self._buffers: dict[int, Buffer] = {}  # by value id, made when the first text needs them
        try:
            self._buffer(NUMBERS)
            self._buffer(DRAWN)
        except BaseException:
            self.close()
            raise

    def begin(self, slot: int, sampler: Sampler | None, prompt_tokens: int) -> list[Command]:
        """Draw for a slot as a sampler of one text does, from where it stands on the GPU: the commands that
        bring over what it has seen come before the next draw. The prompt has so many tokens. Without a
        sampler the likeliest are taken."""
        if not 0 <= slot < self._slots:
            raise InputError(f"slot {slot} is none of {self._slots}")
        form = sampler.form if sampler else Form()
        given = numbers(sampler.sampling if sampler else Sampling())
        words = np.zeros(SETTINGS, np.int32)
        words[: len(given)] = given
        words[FIRST], words[DRAWS] = prompt_tokens - 1, form.draws
        width, commands = 4 * self._vocabulary, list[Command]()
        with self._device.lock:
            before = self._forms.get(slot, Form())
            self._device.write(self._buffer(NUMBERS), words, 4 * SETTINGS * slot)
            # What is left of counts changes nothing where penalties are none; biases are added anyway.
            if before.biases and not form.biases:
                self._device.clear(self._buffer(BIAS), slot * width, width)
            if before.masks and not form.masks:
                self._write_mask(slot, np.full(mask_words(self._vocabulary), 0xFFFFFFFF, np.uint32))
            if sampler:
                copied = (SEEN, ONE_SEEN, form.remembers), (BIAS, ONE_BIAS, form.biases)
                for id, one, is_used in copied:
                    if is_used:
                        commands.append(Copy(sampler.state(one), self._buffer(id), width, slot * width))
            self._forms[slot] = form
        return commands

    def leave(self, slot: int, sampler: Sampler) -> list[Command]:
        """What brings back to a sampler what its text has seen meanwhile, before its next draw alone."""
        if not sampler.form.remembers:
            return []
        width = 4 * self._vocabulary
        return [Copy(self._buffer(SEEN), sampler.state(ONE_SEEN), width, source_offset=slot * width)]

    def allow(self, slot: int, mask: npt.NDArray[np.uint32]) -> None:
        """Tokens that the next draw of a slot may take, as Sampler.allow has them."""
        words = np.zeros(mask_words(self._vocabulary), np.uint32)
        given = mask[: words.size]
        words[: given.size] = given
        with self._device.lock:
            self._write_mask(slot, words)

    def drawing(
        self, logits: View, slots: View, chosen: Sequence[int], tokens: Buffer, positions: Buffer
    ) -> RowsDrawing:
        """What draws for rows of logits whose slots lie in `slots`: `chosen`, and -1 for rows of nobody's.
        The token of slot s goes to tokens[s], and positions[s] grows by one: it is where the token lies whose
        logits these are. It is to be submitted next."""
        form = self._form(chosen)
        session, states = self._session(form)
        places: dict[PlanBuffer, Buffer] = {State(TOKENS): tokens, State(POSITIONS): positions}
        for id in (NUMBERS, DRAWN, *_changing(form)):
            places[State(id)] = self._buffer(id)
        return RowsDrawing(
            session.bound((logits, slots), states, places), self._buffer(DRAWN), form, self._slots
        )

    def close(self) -> None:
        """Free what is its own."""
        with self._device.lock:
            for session, states in self._sessions.values():
                states.close()
                session.close()
            self._sessions.clear()
            for buffer in self._buffers.values():
                self._device.free(buffer)
            self._buffers.clear()

    def _form(self, chosen: Sequence[int]) -> Form:
        """What any of the slots needs."""
        found = []
        for slot in chosen:
            if slot >= 0:
                if slot not in self._forms:
                    raise InputError(f"slot {slot}: no text has begun there")
                found.append(self._forms[slot])
        names = [field.name for field in fields(Form)]
        return Form(**{name: any(getattr(form, name) for form in found) for name in names})

    def _session(self, form: Form) -> tuple[Session, States]:
        found = self._sessions.get(form)
        if found is None:
            graph = rows_graph(self._vocabulary, self._slots, form, self._dtype)
            session = Session.of(graph, self._device)
            found = self._sessions[form] = session, _Elsewhere(self._device, session.executable)
        self._sessions.move_to_end(form)
        while len(self._sessions) > FORMS_MAX:
            _, (session, states) = self._sessions.popitem(last=False)
            states.close()
            session.close()
        return found

    def _buffer(self, id: int) -> Buffer:
        found = self._buffers.get(id)
        if found is None:
            size = 4 * self._slots * self._words(id)
            found = self._buffers[id] = self._device.create_buffer(size, f"rows of a sampler %{id}")
            if id == MASK:
                self._device.write(found, np.full(size // 4, 0xFFFFFFFF, np.uint32))
        return found

    def _words(self, id: int) -> int:
        """Words of a slot."""
        lists = 2 * pairs_of(Form(lists=True))
        sizes = {NUMBERS: SETTINGS, DRAWN: lists, MASK: mask_words(self._vocabulary)}
        return sizes.get(id, self._vocabulary)

    def _write_mask(self, slot: int, words: npt.NDArray[np.uint32]) -> None:
        self._device.write(self._buffer(MASK), words, slot * words.nbytes)


def _changing(form: Form) -> list[int]:
    """The states that a form changes logits by."""
    used = {SEEN: form.remembers, BIAS: form.biases, MASK: form.masks}
    return [id for id, is_used in used.items() if is_used]


def rows_graph(vocabulary: int, slots: int, form: Form, dtype: DType) -> Graph:
    """One call of the operator for up to as many rows as there are slots. All but logits and slots are
    states, so that other memory can stand in their place; what the form does without is one word."""
    logits, chosen = Tensor(LOGITS, dtype, (slots, vocabulary)), Tensor(SLOTS, DType.I32, (slots,))
    used = _changing(form)
    shapes = {SEEN: (slots, vocabulary), BIAS: (slots, vocabulary), MASK: (slots, mask_words(vocabulary))}
    changing = [
        _state(id, shapes[id] if id in used else (1,), DType.F32 if id == BIAS else DType.I32)
        for id in (SEEN, BIAS, MASK)
    ]
    drawn = _state(DRAWN, (slots, pairs_of(form), 2))
    node = Node(
        0,
        SAMPLE_ROWS,
        (
            logits,
            chosen,
            _state(NUMBERS, (slots, SETTINGS)),
            *changing,
            _state(TOKENS, (slots,)),
            _state(POSITIONS, (slots,)),
            form.words,
            drawn,
        ),
    )
    return Graph("rows", (node,), inputs=(logits, chosen), outputs=(drawn,), is_internal=True)


def _state(id: int, shape: tuple[int, ...], dtype: DType = DType.I32) -> Tensor:
    zeros = memoryview(np.zeros(shape, dtype.numpy).tobytes())
    return Tensor(id, dtype, shape, Constant(f"rows {id}", dtype, shape, zeros))
