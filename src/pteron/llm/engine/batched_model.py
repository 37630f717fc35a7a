"""A language model over a batch: one decode step serves many sequences and reads the weights only once.

The KV caches and recurrent states of the sequences are slots of one buffer. A LanguageModel prefills its
prompt in its slot, and `step` decodes all slots together. Tokens, positions and draws are stored by slot on
the GPU, so the host writes nothing between two steps unless sequences join or leave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from weakref import ReferenceType, ref

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType, Storage
from pteron.errors import DeviceError, InputError, OutOfMemory, UnsupportedError
from pteron.gpu import (
    SLOT_ALIGNMENT,
    Buffer,
    Command,
    Copy,
    Readback,
    Replay,
    SequenceSlots,
    SlotStates,
    submit,
)
from pteron.host.tensors import View
from pteron.llm.model import LanguageModel
from pteron.llm.sampling import Drawn, Sampler
from pteron.llm.sampling.batch_sampler import BatchDrawing, BatchSampler
from pteron.llm.sampling.form import RING
from pteron.ops.operand import State
from pteron.passes import prepare
from pteron.passes.batched import BatchedGraph, batch
from pteron.plan import Compiled
from pteron.runtime.session import Counters, Session

ROWS_EXACT = 8  # up to this, each number of rows has its own plan; above, rows are padded


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A sequence in a batched step: its slot, the position of its next token, and that token, on the host or
    on the GPU (None: the token that the previous step drew in this slot). Without a sampler the step takes
    the likeliest token; with one, it draws the tokens that the sampler would draw from `step` on. A sampler
    with masks draws only tokens that `mask` allows, and only for one step. `joining` has the commands of
    `BatchedModel.join`; None: `step` calls it."""

    slot: int
    position: int
    token: int | View | None = None
    sampler: Sampler | None = None
    step: int = 0
    mask: npt.NDArray[np.uint32] | None = field(default=None, compare=False)
    joining: Sequence[Command] | None = field(default=None, compare=False)


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


class BatchedModel:
    """A model over up to `slots` sequences. Only sequences in a slot can step. New sequences of the model get
    a free slot, and `move_into_slot` moves an existing one into a slot."""

    def __init__(self, model: LanguageModel, slots: int) -> None:
        self.model = model
        self.device = model.device
        self.batched = _batched(model, slots)
        assert model.delegate is not None
        self._single = model.delegate.session
        executable = model.delegate.executable
        if self._single.slots is not None:
            raise InputError(f"{executable.name}: its sequences are in slots already")
        with self.device.lock, ExitStack() as made:  # all or nothing
            compiled = Compiled(prepare(self.batched.graph), executable.target)
            self.session = Session(compiled.executable, self.device, Counters(), compiled)
            made.callback(self.session.close)
            self.states = self.session.states()
            made.callback(self.states.close)
            self._sampler = BatchSampler(self.device, model.vocabulary, slots, model.logits_dtype)
            made.callback(self._sampler.close)
            self._chosen = self.device.create_buffer(4 * slots, "slots of rows")
            made.callback(self.device.free, self._chosen)
            self.slots = SequenceSlots(self.device, executable, self.states, slots, self.batched.caches)
            self._single.slots = self.slots
            self._made = made.pop_all()
        self._rows: tuple[int, ...] = ()  # the slots in `_chosen`
        self._positions: dict[int, int] = {}  # positions on the GPU, for slots whose next token is there too
        # The sampler that each slot draws for (None: greedy), its next step and position. The token counts of
        # a sequence (for penalties) are in its slot while it steps in a batch, else in its own sampler; they
        # are copied on the GPU when it joins or leaves.
        self._drawing_for: dict[int, tuple[ReferenceType[Sampler] | None, int, int]] = {}
        self._is_closed = False
        limits = [limit for limit in (self.batched.capacity, model.context) if limit]
        self._context = min(limits, default=2**31 - 1)

    @classmethod
    def allocate(cls, model: LanguageModel, slots: int) -> BatchedModel:
        """A batch with `slots` slots. If GPU memory is too small, the number is halved, down to two."""
        most = min(slots, cls.slots_max(model))
        if most < 2:
            no_room = "the device has no room for two of its caches"
            why = "only one sequence is allowed" if slots < 2 else no_room
            raise UnsupportedError(f"{model.program.file.name} cannot be batched: {why}")
        while True:
            try:
                return cls(model, most)
            except OutOfMemory:
                if most == 2:
                    raise
            most = max(2, most // 2)

    @staticmethod
    def reason(model: LanguageModel) -> str | None:
        """Why a model cannot be batched; None if it can."""
        try:
            _batched(model, 1)
        except UnsupportedError as error:
            return str(error)
        return None

    @staticmethod
    def slots_max(model: LanguageModel) -> int:
        """The maximum number of slots: each cache, and the token counts of the vocabulary, must fit into one
        buffer."""
        assert model.delegate is not None
        caches = model.delegate.executable.states.values()
        largest = max(4 * model.vocabulary, *(state.bytes for state in caches), 1)
        return model.device.target.binding_bytes_max // largest

    def move_into_slot(self, sequence: LanguageModel) -> int | None:
        """Move a sequence into a slot if it has none and one is free; returns its slot. None if there is no
        free slot or no memory."""
        slot = self.slot_of(sequence)
        if slot is not None or sequence.delegate is None:
            return slot
        with self.device.lock, suppress(OutOfMemory):
            states = self.slots.take()
            if states is not None:
                try:
                    sequence.delegate.move(states)
                finally:
                    if sequence.delegate.states is not states:
                        states.close()
        return self.slot_of(sequence)

    def slot_of(self, sequence: LanguageModel) -> int | None:
        """The slot of a sequence; None if it has its own memory."""
        states = sequence.delegate.states if sequence.delegate else None
        return states.slot if isinstance(states, SlotStates) and states.slots is self.slots else None

    def token_of(self, slot: int) -> View:
        """The token that was drawn last in a slot, on the GPU."""
        return View(self._words(self.batched.tokens), 4 * slot, (1, 1), DType.I32, Storage.I32)

    def step(self, rows: Sequence[BatchRow], count: int = 1) -> BatchSubmission:
        """Submit `count` decode steps of every row, without waiting. The first step reads the row's next
        token, each later step the token that was drawn before it."""
        count = min(count, RING)
        with self.device.lock:
            self._check(rows, count)
            copies = self._write_rows(rows)
            for row in rows:
                self._positions.pop(row.slot, None)  # unknown, should this fail
            logits, model = self._model(rows, count)
            joining = [
                command
                for row in rows
                for command in (self.join(row) if row.joining is None else row.joining)
            ]
            tokens, positions = self._words(self.batched.tokens), self._words(self.batched.positions)
            chosen = [row.slot for row in rows]
            drawing = self._sampler.drawing(logits, self._slots_of(len(rows)), chosen, tokens, positions)
            readback = self.device.readback(drawing.size)
            copy = Copy(drawing.drawn, readback.staging, drawing.size)
            commands: list[Command] = [*copies, *joining, *([model, drawing.replay] * count), copy]
            number = submit(self.device, commands)
            readback.begin()
            for row in rows:
                sampler = None if row.sampler is None else ref(row.sampler)
                self._drawing_for[row.slot] = sampler, row.step + count, row.position + count
                self._positions[row.slot] = row.position + count
            self.session.counters.calls += count
            return BatchSubmission(tuple(rows), count, readback, drawing, number)

    def join(self, row: BatchRow) -> Sequence[Command]:
        """Prepare the sampler for the next step of a row: returns the commands that copy the state of a
        joining sequence, before the draw. The mask is written at once."""
        commands: Sequence[Command] = ()
        with self.device.lock:
            if not self._continues(row):
                self._drawing_for.pop(row.slot, None)  # if `begin` fails, the slot's state is unknown
                prompt_tokens = row.position - row.step + 1
                commands = self._sampler.begin(row.slot, row.sampler, prompt_tokens)
            if row.mask is not None:
                self._sampler.allow(row.slot, row.mask)
        return commands

    def _continues(self, row: BatchRow) -> bool:
        """Whether a row is the next step of the sequence in its slot. Greedy rows keep no state."""
        if row.slot not in self._drawing_for:
            return False
        sampler, step, position = self._drawing_for[row.slot]
        if sampler is None or row.sampler is None:
            return sampler is None and row.sampler is None
        return sampler() is row.sampler and (step, position) == (row.step, row.position)

    def leave(self, slot: int, sampler: Sampler) -> None:
        """Copy the token counts of a slot back to its sampler, before its sequence steps alone."""
        with self.device.lock:
            joined, *_ = self._drawing_for.get(slot, (None,))
            if joined is not None and joined() is sampler:
                del self._drawing_for[slot]
                if commands := self._sampler.leave(slot, sampler):
                    submit(self.device, commands)

    def logits(self, rows: Sequence[BatchRow]) -> npt.NDArray[np.float32]:
        """Run the next token of every row through the model; waits for the logits [rows, vocabulary]."""
        with self.device.lock:
            self._check(rows, 1)
            copies = self._write_rows(rows)
            view, model = self._model(rows, 1)
            submit(self.device, [*copies, model])
            data = self.device.read(view.buffer, len(rows) * self.model.vocabulary * view.storage.itemsize)
            found = np.frombuffer(data, view.storage.numpy).reshape(len(rows), -1)
            return found.astype(np.float32)

    def warm(self, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Make the plans for all numbers of rows at all positions, the most rows first, as long as they are
        wanted. Other threads may use the model meanwhile."""
        positions = [source.symbol for source in self.session.executable.sources]
        for rows in sorted({self._padded(count) for count in range(1, self.slots.count + 1)}, reverse=True):
            context = 1
            while context <= self._context and is_wanted():
                plan = self.session.make_plan((self._slots_of(rows), context), plain=True)
                context = plan.reach(dict.fromkeys(positions, context), positions, self._context) + 1

    def close(self) -> None:
        """Free its memory. Sequences in its slots become unusable."""
        with self.device.lock:
            if not self._is_closed:
                self._is_closed = True
                self._single.slots = None
                self._made.close()

    # Commands ------------------------------------------------------------------------------------

    def _words(self, state: int) -> Buffer:
        return self.states[State(state)]

    def _model(self, rows: Sequence[BatchRow], count: int) -> tuple[View, Replay]:
        """The logits of all rows, and the commands that compute them."""
        context = max(row.position for row in rows) + count
        inputs = (self._slots_of(len(rows)), context)
        found = self.session.find_recording(inputs, plain=True)
        (logits,) = self.session.outputs(*found, self.states)
        assert isinstance(logits, View)
        shape = (self._padded(len(rows)), self.model.vocabulary)
        flat = View(logits.buffer, 0, shape, logits.dtype, logits.storage)
        return flat, self.session.bind_inputs(inputs, self.states, {}, found)

    def _slots_of(self, count: int) -> View:
        return View(self._chosen, 0, (self._padded(count),), DType.I32, Storage.I32)

    def _padded(self, count: int) -> int:
        """The number of rows of the plan; rows past the end are unused."""
        step = 1 if count <= ROWS_EXACT else 2 if count <= 2 * ROWS_EXACT else 4
        return min(-(-count // step) * step, self.slots.count)

    def _write_rows(self, rows: Sequence[BatchRow]) -> list[Copy]:
        """Write what the GPU does not have yet: the slots of the rows, and the tokens and positions of
        joining sequences. Returns the copies for tokens that are in other GPU buffers."""
        chosen = tuple(row.slot for row in rows) + (-1,) * (self._padded(len(rows)) - len(rows))
        if chosen != self._rows:
            self._rows = ()
            self.device.write(self._chosen, np.array(chosen, np.int32))
            self._rows = chosen
        copies = []
        for row in rows:
            if isinstance(row.token, View):
                target = self._words(self.batched.tokens)
                source = row.token.offset
                copies.append(
                    Copy(row.token.buffer, target, 4, target_offset=4 * row.slot, source_offset=source)
                )
            elif row.token is not None:
                self._write(self.batched.tokens, row.slot, row.token)
            if self._positions.get(row.slot) != row.position:
                self._write(self.batched.positions, row.slot, row.position)
        return copies

    def _write(self, state: int, slot: int, word: int) -> None:
        self.device.write(self._words(state), np.array([word], np.int32), 4 * slot)

    def _check(self, rows: Sequence[BatchRow], count: int) -> None:
        if self._is_closed:
            raise DeviceError(f"{self.session.executable.name}: the batch is closed")
        last = max(row.position for row in rows) + count
        if last > self._context:
            raise InputError(f"{self.session.executable.name}: {last} tokens exceed a slot's {self._context}")


def _batched(model: LanguageModel, slots: int) -> BatchedGraph:
    name = model.program.file.name
    if model.delegate is None or not model.is_resident:
        raise UnsupportedError(f"{name} cannot be batched: its steps pass through the host")
    (graph,) = model.program.graphs(model.method.name)
    made = batch(graph, slots)
    for size in (model.delegate.executable.states[id].bytes for id in made.caches):
        if size % SLOT_ALIGNMENT:
            odd = f"its cache of {size:,} bytes is not a multiple of {SLOT_ALIGNMENT}"
            raise UnsupportedError(f"{name} cannot be batched: {odd}")
    return made
