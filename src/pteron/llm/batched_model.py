"""A language model over the next tokens of many sequences at once: weights are read once for all of them.

Sequences have their caches in slots of one memory, so what reads a prompt (a LanguageModel in a slot) and
what decodes all of them together (`step`) see the same. Tokens, positions and what is drawn lie by slot on
the GPU: from one step to the next the host brings nothing, unless sequences come or go.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType, Storage
from pteron.errors import DeviceError, InputError, OutOfMemory, UnsupportedError
from pteron.gpu import SLOT_ALIGNMENT, Buffer, Command, Copy, Replay, Slots, SlotStates, submit
from pteron.gpu.tensors import View
from pteron.llm.model import LanguageModel
from pteron.llm.reentrancy import device_guard
from pteron.llm.sampling import Sampler
from pteron.llm.sampling.operator import RING
from pteron.llm.submission import BatchDraws, BatchRow, BatchSubmission
from pteron.ops.operand import State
from pteron.passes import prepare
from pteron.passes.batched import BatchedGraph, batch
from pteron.plan import Compiled
from pteron.runtime.session import Counters, Session

STEPS_MAX = RING  # of a submission: what is drawn is remembered for as many
ROWS_EXACT = 8  # so many rows or fewer have plans of their own; of more, every second or fourth number has


class BatchedModel:
    """A model over up to `slots` sequences. Those that lie in a slot can take part in steps: what
    `sequence()` makes, and what `house()` moves into one."""

    def __init__(self, model: LanguageModel, slots: int) -> None:
        if slots < 1:
            raise InputError(f"{slots} slots; there must be one at least")
        self.model = model
        self.device = model.device
        self.batched = _batched(model, slots)
        assert model.delegate is not None
        self._single = model.delegate.session
        executable = model.delegate.executable
        if self._single.slots is not None:
            raise InputError(f"{executable.name}: its sequences lie in slots already")
        with (
            self.device.lock,
            device_guard(self.device),
            ExitStack() as made,
        ):  # all of it, or nothing is kept
            compiled = Compiled(prepare(self.batched.graph), executable.target)
            self.session = Session(compiled.executable, self.device, Counters(), compiled)
            made.callback(self.session.close)
            self.states = self.session.states()
            made.callback(self.states.close)
            self._draws = BatchDraws(
                self.device,
                model.vocabulary,
                slots,
                model.logits_dtype,
                self._words(self.batched.tokens),
                self._words(self.batched.positions),
            )
            made.callback(self._draws.close)
            self._chosen = self.device.create_buffer(4 * slots, "slots of rows")
            made.callback(self.device.free, self._chosen)
            self.slots = Slots(self.device, executable, self.states, slots, self.batched.caches)
            self._single.slots = self.slots
            self._made = made.pop_all()
        self._rows: tuple[int, ...] = ()  # the slots that `_chosen` has
        self._positions: dict[int, int] = {}  # as the GPU counts them, of slots whose token it has too
        self._is_closed = False

    @classmethod
    def fitting(cls, model: LanguageModel, slots: int) -> BatchedModel:
        """One of so many slots, or of half as many and so on where the device has no room; two at least."""
        most = min(slots, cls.slots_max(model))
        if most < 2:
            no_room = "no two of its caches have room side by side"
            why = "only one sequence is asked for" if slots < 2 else no_room
            raise UnsupportedError(f"{model.program.file.name} cannot be batched: {why}")
        slots = most
        while True:
            try:
                return cls(model, slots)
            except OutOfMemory:
                if slots == 2:
                    raise
            slots = max(2, slots // 2)

    @staticmethod
    def reason(model: LanguageModel) -> str | None:
        """Why a model cannot be batched; None where it can."""
        try:
            _batched(model, 1)
        except UnsupportedError as error:
            return str(error)
        return None

    @staticmethod
    def slots_max(model: LanguageModel) -> int:
        """How many slots a device has room for in one buffer of each cache, and of what is counted for each
        token of the vocabulary."""
        assert model.delegate is not None
        caches = model.delegate.executable.states.values()
        largest = max(4 * model.vocabulary, *(state.bytes for state in caches), 1)
        return model.device.target.binding_bytes_max // largest

    @property
    def capacity(self) -> int:
        """Tokens that the cache of a sequence holds."""
        return min(self.batched.capacity, self.model.context or self.batched.capacity)

    def sequence(self) -> LanguageModel:
        """A sequence in a slot of its own."""
        with self.device.lock:
            if not self.slots.free:
                raise InputError(f"all {self.slots.count} slots are in use")
            return self.model.sequence()

    def house(self, sequence: LanguageModel) -> int | None:
        """The slot of a sequence, which moves into one where it has none and there is one; else None, as
        where the device has no room for what goes with a slot."""
        slot = self.slot_of(sequence)
        if slot is not None or sequence.delegate is None:
            return slot
        with self.device.lock, device_guard(self.device), suppress(OutOfMemory):
            states = self.slots.take()
            if states is not None:
                try:
                    sequence.delegate.move(states)
                finally:
                    if sequence.delegate.states is not states:
                        states.close()
        return self.slot_of(sequence)

    def slot_of(self, sequence: LanguageModel) -> int | None:
        """The slot that a sequence lies in; None where it has memory of its own."""
        states = sequence.delegate.states if sequence.delegate else None
        return states.slot if isinstance(states, SlotStates) and states.slots is self.slots else None

    def token_of(self, slot: int) -> View:
        """Where the token lies that was drawn last for a slot."""
        return View(self._words(self.batched.tokens), 4 * slot, (1, 1), DType.I32, Storage.I32)

    def step(self, rows: Sequence[BatchRow], count: int = 1) -> BatchSubmission:
        """Run the next token of every row through the model, then the `count` - 1 that are drawn after it, in
        one submission. Nothing is waited for."""
        count = min(count, STEPS_MAX)
        with self.device.lock, device_guard(self.device):
            self._check(rows, count)
            copies = self._bring(rows)
            for row in rows:
                self._positions.pop(row.slot, None)  # should this fail, nobody knows where the GPU stands
            logits, model = self._model(rows, count)
            joining = self._draws.begin(rows)
            drawing = self._draws.drawing(logits, self._slots_of(len(rows)), rows)
            submission, copy = self._draws.submission(rows, count, drawing)
            commands: list[Command] = [*copies, *joining, *([model, drawing.replay] * count), copy]
            submission.begin(submit(self.device, commands))
            self._draws.advance(rows, count)
            self._positions.update({row.slot: row.position + count for row in rows})
            self.session.counters.calls += count
            return submission

    def leave(self, slot: int, sampler: Sampler) -> None:
        """Before the sequence of a slot goes on alone: let its sampler have what the steps here have drawn
        for it."""
        with self.device.lock, device_guard(self.device):
            commands = self._draws.leave(slot, sampler)
            if commands:
                submit(self.device, commands)

    def logits(self, rows: Sequence[BatchRow]) -> npt.NDArray[np.float32]:
        """Run the next token of every row through the model; the logits [rows, vocabulary], waited for."""
        with self.device.lock, device_guard(self.device):
            self._check(rows, 1)
            copies = self._bring(rows)
            view, model = self._model(rows, 1)
            submit(self.device, [*copies, model])
            data = self.device.read(view.buffer, len(rows) * self.model.vocabulary * view.storage.itemsize)
            found = np.frombuffer(data, view.storage.numpy).reshape(len(rows), -1)
            return found.astype(np.float32)

    def close(self) -> None:
        """Free what is its own. Sequences in its slots are of no use any more."""
        with self.device.lock:
            if not self._is_closed:
                self._is_closed = True
                self._single.slots = None
                self._made.close()

    # What the GPU is told --------------------------------------------------------------------------

    def _words(self, state: int) -> Buffer:
        return self.states[State(state)]

    def _model(self, rows: Sequence[BatchRow], count: int) -> tuple[View, Replay]:
        """Where the logits of all rows will lie, and what makes them."""
        context = max(row.position for row in rows) + count
        inputs = (self._slots_of(len(rows)), context)
        recording, numbers = self.session.ready(inputs)
        (logits,) = self.session.outputs(recording, numbers, self.states)
        assert isinstance(logits, View)
        shape = (self._padded(len(rows)), self.model.vocabulary)
        flat = View(logits.buffer, 0, shape, logits.dtype, logits.storage)
        return flat, self.session.bound(inputs, self.states, {})

    def _slots_of(self, count: int) -> View:
        return View(self._chosen, 0, (self._padded(count),), DType.I32, Storage.I32)

    def _padded(self, count: int) -> int:
        """The number of rows that a plan is made for: those past the end are nobody's."""
        step = 1 if count <= ROWS_EXACT else 2 if count <= 2 * ROWS_EXACT else 4
        return min(-(-count // step) * step, self.slots.count)

    def _bring(self, rows: Sequence[BatchRow]) -> list[Copy]:
        """Write what the GPU does not have: who takes part, tokens and positions of those who come in. Tokens
        that it has elsewhere are copied first."""
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
            raise DeviceError(f"{self.session.executable.name}: it is closed")
        if not rows or count < 1:
            raise InputError(f"{count} steps of {len(rows)} rows; there must be one at least")
        slots = [row.slot for row in rows]
        if len(set(slots)) < len(slots) or not all(0 <= slot < self.slots.count for slot in slots):
            raise InputError(
                f"rows take the slots {slots}: each is taken once, of 0 to {self.slots.count - 1}"
            )
        for row in rows:
            if not 0 <= row.position <= self.capacity - count:
                end = row.position + count
                raise InputError(f"slot {row.slot}: tokens {row.position} to {end} leave its {self.capacity}")
            if row.token is None and row.slot not in self._positions:
                raise InputError(f"slot {row.slot}: nothing was drawn there, so its row has to bring a token")
            if isinstance(row.token, int) and not 0 <= row.token < self.model.vocabulary:
                raise InputError(f"token {row.token} is outside the vocabulary of {self.model.vocabulary}")


def _batched(model: LanguageModel, slots: int) -> BatchedGraph:
    name = model.program.file.name
    if model.delegate is None or not model.is_resident:
        raise UnsupportedError(f"{name} cannot be batched: its steps go through the host")
    (graph,) = model.program.graphs(model.method.name)
    made = batch(graph, slots)
    for size in (model.delegate.executable.states[id].bytes for id in made.caches):
        if size % SLOT_ALIGNMENT:
            odd = f"a cache of {size:,} bytes, no multiple of {SLOT_ALIGNMENT}, cannot lie beside others"
            raise UnsupportedError(f"{name} cannot be batched: {odd}")
    return made
