"""The sampler of a batch: logits [rows, vocabulary] -> the next token of each row's sequence, on the GPU.

Each sequence has a slot. Its settings are written to the slot once, when it joins. Rows with different
settings share a launch, and kernels are compiled once per form: the union of the rows' forms.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType
from pteron.gpu import Buffer, Command, Copy, Device, Replay, States
from pteron.host.tensors import View
from pteron.llm.sampling import graphs
from pteron.llm.sampling.form import Drawn, Form, numbers, read_drawn
from pteron.llm.sampling.logits_rows import DRAWS, FIRST, SETTINGS_WORDS
from pteron.llm.sampling.operator import mask_words
from pteron.llm.sampling.sampler import Sampler
from pteron.llm.sampling.settings import Sampling
from pteron.ops.operand import State
from pteron.plan import PlanBuffer
from pteron.runtime.session import Session

FORMS_MAX = 8  # compiled forms in the cache


@dataclass(frozen=True, slots=True)
class BatchDrawing:
    """The commands that draw a token for each row, once per replay, and a reader of the draws: `size` bytes
    of `drawn`."""

    replay: Replay
    drawn: Buffer
    form: Form
    slot_count: int

    @property
    def size(self) -> int:
        return self._start(self.slot_count)

    def read(self, data: bytes, slot: int, position: int, tops: int) -> Drawn:
        """The draw after the token at a position, with its `tops` likeliest tokens."""
        return read_drawn(data, self._start(slot), position, tops)

    def _start(self, slot: int) -> int:
        return 8 * self.form.pairs * slot


class _NoStates(States):
    """The states of a session whose launches all use the sampler's own buffers: none are allocated."""

    def _make(self) -> None:
        pass


class BatchSampler:
    """Draws the next token of each slot's sequence, and leaves it on the GPU."""

    def __init__(self, device: Device, vocabulary: int, slots: int, dtype: DType = DType.F32) -> None:
        self._device, self._vocabulary, self._slots, self._dtype = device, vocabulary, slots, dtype
        self._forms: dict[int, Form] = {}  # by slot
        self._sessions: OrderedDict[Form, tuple[Session, States]] = OrderedDict()
        self._buffers: dict[int, Buffer] = {}  # by value id, made at first use
        try:
            self._buffer(graphs.SETTINGS)
            self._buffer(graphs.DRAWN)
        except BaseException:
            self.close()
            raise

    def begin(self, slot: int, sampler: Sampler | None, prompt_tokens: int) -> list[Command]:
        """Draw for a slot as `sampler` does, or greedily without one. Returns the commands that copy its
        state, which must run before the next draw. `prompt_tokens` is the length of the prompt."""
        form = sampler.form if sampler else Form()
        given = numbers(sampler.sampling if sampler else Sampling())
        words = np.zeros(SETTINGS_WORDS, np.int32)
        words[: len(given)] = given
        words[FIRST], words[DRAWS] = prompt_tokens - 1, form.is_random
        width, commands = 4 * self._vocabulary, list[Command]()
        with self._device.lock:
            before = self._forms.get(slot, Form())
            self._device.write(self._buffer(graphs.SETTINGS), words, 4 * SETTINGS_WORDS * slot)
            # Old token counts have no effect without penalties, but biases and masks do.
            if before.has_biases and not form.has_biases:
                self._device.clear(self._buffer(graphs.BIAS), slot * width, width)
            if before.has_mask and not form.has_mask:
                self._write_mask(slot, np.full(mask_words(self._vocabulary), 0xFFFFFFFF, np.uint32))
            if sampler:
                for id, is_used in ((graphs.SEEN, form.counts_tokens), (graphs.BIAS, form.has_biases)):
                    if is_used:
                        commands.append(Copy(sampler.state(id), self._buffer(id), width, slot * width))
            self._forms[slot] = form
        return commands

    def leave(self, slot: int, sampler: Sampler) -> list[Command]:
        """The commands that copy the token counts of a slot back to its sampler."""
        if not sampler.form.counts_tokens:
            return []
        width = 4 * self._vocabulary
        return [
            Copy(self._buffer(graphs.SEEN), sampler.state(graphs.SEEN), width, source_offset=slot * width)
        ]

    def allow(self, slot: int, mask: npt.NDArray[np.uint32]) -> None:
        """Set the mask of a slot for its next draw, as Sampler.allow does."""
        words = graphs.to_mask_words(mask, self._vocabulary)
        with self._device.lock:
            self._write_mask(slot, words)

    def drawing(
        self, logits: View, slots: View, chosen: Sequence[int], tokens: Buffer, positions: Buffer
    ) -> BatchDrawing:
        """The commands that draw for rows of logits. `slots` has the slot of each row on the GPU, `chosen`
        the same on the host; -1: the row is unused. The token of slot s goes to tokens[s], and positions[s],
        the position of the token before it, grows by one. The commands must be submitted next."""
        form = self.form_of(chosen)
        session, states = self._session(form)
        places: dict[PlanBuffer, Buffer] = {State(graphs.TOKEN): tokens, State(graphs.STEPS): positions}
        for id in (graphs.SETTINGS, graphs.DRAWN, *graphs.processor_states(form)):
            places[State(id)] = self._buffer(id)
        replay = session.bind_inputs((logits, slots), states, places)
        return BatchDrawing(replay, self._buffer(graphs.DRAWN), form, self._slots)

    def close(self) -> None:
        with self._device.lock:
            for session, states in self._sessions.values():
                states.close()
                session.close()
            self._sessions.clear()
            for buffer in self._buffers.values():
                self._device.free(buffer)
            self._buffers.clear()

    def form_of(self, chosen: Sequence[int]) -> Form:
        """The union of the forms of the given slots."""
        found = [self._forms[slot] for slot in chosen if slot >= 0]
        names = [field.name for field in fields(Form)]
        return Form(**{name: any(getattr(form, name) for form in found) for name in names})

    def _session(self, form: Form) -> tuple[Session, States]:
        found = self._sessions.get(form)
        if found is None:
            graph = graphs.batch_graph(self._vocabulary, self._slots, form, self._dtype)
            session = Session.of(graph, self._device)
            found = self._sessions[form] = session, _NoStates(self._device, session.executable)
        self._sessions.move_to_end(form)
        while len(self._sessions) > FORMS_MAX:
            _, (session, states) = self._sessions.popitem(last=False)
            states.close()
            session.close()
        return found

    def _buffer(self, id: int) -> Buffer:
        found = self._buffers.get(id)
        if found is None:
            lists = 2 * Form(has_top_logprobs=True).pairs
            sizes = {
                graphs.SETTINGS: SETTINGS_WORDS,
                graphs.DRAWN: lists,
                graphs.MASK: mask_words(self._vocabulary),
            }
            size = 4 * self._slots * sizes.get(id, self._vocabulary)
            found = self._buffers[id] = self._device.create_buffer(size, f"batch sampler %{id}")
            if id == graphs.MASK:
                self._device.write(found, np.full(size // 4, 0xFFFFFFFF, np.uint32))
        return found

    def _write_mask(self, slot: int, words: npt.NDArray[np.uint32]) -> None:
        self._device.write(self._buffer(graphs.MASK), words, slot * words.nbytes)
