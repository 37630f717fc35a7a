"""A language model over the next tokens of many sequences at once: weights are read once for all of them.

Sequences have their caches in slots of one memory, so what reads a prompt (a LanguageModel of `sequence()`)
and what decodes all of them together (`step`) see the same. Tokens, positions and what is drawn lie by slot
on the GPU: from one step to the next the host brings nothing, unless sequences come or go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType, Storage
from pteron.errors import DeviceError, InputError, UnsupportedError
from pteron.gpu import SLOT_ALIGNMENT, Buffer, Command, Copy, Readback, Replay, Slots, SlotStates, submit
from pteron.llm.entered import work_on
from pteron.llm.model import LanguageModel
from pteron.llm.sampling.greedy_rows import DRAWN, POSITIONS, TOKENS, greedy_graph
from pteron.llm.sampling.operator import RING
from pteron.ops.operand import State
from pteron.passes import prepare
from pteron.passes.batched import BatchedGraph, batch
from pteron.plan import Compiled, PlanBuffer
from pteron.runtime.session import Counters, Session
from pteron.runtime.tensors import View

STEPS_MAX = RING  # of a submission: what is drawn is remembered for as many
ROWS_EXACT = 8  # so many rows or fewer have plans of their own; of more, every second or fourth number has


@dataclass(frozen=True, slots=True)
class Row:
    """A sequence that takes part in a step: its slot, where its next token goes, and the token, unless it was
    drawn there by the step before."""

    slot: int
    position: int
    token: int | None = None


class Burst:
    """Steps that were submitted, and what they draw on its way to the host."""

    def __init__(
        self, rows: Sequence[Row], count: int, readback: Readback, size: int, submission: int
    ) -> None:
        self.rows = tuple(rows)
        self.count = count
        self._readback: Readback | None = readback
        self._size = size
        self._submission = submission
        self._drawn: npt.NDArray[np.int32] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether reading would wait for nothing."""
        return self._readback is None or self._readback.is_ready()

    def read(self) -> list[list[tuple[int, float]]]:
        """For each row the (token, log-probability) of every step."""
        if self._drawn is None:
            assert self._readback is not None
            data = self._readback.peek(0, self._size, self._submission)
            self._readback.release()
            self._readback = None
            self._drawn = np.frombuffer(data, np.int32).reshape(-1, 2)
        tokens, logprobs = self._drawn[:, 0], self._drawn.view(np.float32)[:, 1]
        places = [
            [row.slot * RING + (row.position + step) % RING for step in range(self.count)]
            for row in self.rows
        ]
        return [[(int(tokens[place]), float(logprobs[place])) for place in row] for row in places]


class Batched:
    """A model over up to `slots` sequences. Those that its `sequence()` makes can take part in steps."""

    def __init__(self, model: LanguageModel, slots: int) -> None:
        if slots < 1:
            raise InputError(f"{slots} slots; there must be one at least")
        self.model = model
        self.device = model.device
        self.batched = _batched(model, slots)
        assert model.delegate is not None
        target = model.delegate.executable.target
        self._single = model.delegate.session
        executable = model.delegate.executable
        for id in self.batched.caches:
            if executable.states[id].bytes % SLOT_ALIGNMENT:
                raise UnsupportedError(
                    f"{executable.name} cannot be batched: {_odd(executable.states[id].bytes)}"
                )
        if self._single.slots is not None:
            raise InputError(f"{executable.name}: its sequences lie in slots already")
        with self.device.lock, work_on(self.device):
            compiled = Compiled(prepare(self.batched.graph), target)
            self.session = Session(compiled.executable, self.device, Counters(), compiled)
            self.states = self.session.states()
            self._drawing = Session.of(
                greedy_graph(slots, model.vocabulary, slots, model.logits_dtype), self.device
            )
            self._drawing_states = self._drawing.states()
            self._chosen = self.device.create_buffer(4 * slots, "slots of rows")
            self.slots = Slots(self.device, executable, self.states, slots)
            self._single.slots = self.slots
        self._rows: tuple[int, ...] = ()  # the slots that `_chosen` has
        self._positions: dict[int, int] = {}  # as the GPU counts them, of slots whose token it has too
        self._is_closed = False

    @staticmethod
    def reason(model: LanguageModel) -> str | None:
        """Why a model cannot be batched; None where it can."""
        try:
            _batched(model, 1)
        except UnsupportedError as error:
            return str(error)
        return None

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

    def slot_of(self, sequence: LanguageModel) -> int | None:
        """The slot that a sequence lies in; None where it has memory of its own."""
        states = sequence.delegate.states if sequence.delegate else None
        return states.slot if isinstance(states, SlotStates) and states.slots is self.slots else None

    def step(self, rows: Sequence[Row], count: int = 1) -> Burst:
        """Run the next token of every row through the model, then the `count` - 1 likeliest that follow, in
        one submission. Nothing is waited for."""
        count = min(count, STEPS_MAX)
        with self.device.lock, work_on(self.device):
            self._check(rows, count)
            self._bring(rows)
            commands: list[Command] = []
            for slot in (row.slot for row in rows):
                self._positions.pop(slot, None)  # should this fail, nobody knows where the GPU stands
            logits, model = self._model(rows, count)
            drawing = self._drawing.bound(
                (logits, self._slots_of(len(rows))), self._drawing_states, self._shared
            )
            commands = [model, drawing] * count
            home = self._drawing_states[State(DRAWN)]
            readback = self.device.readback(home.size)
            submission = submit(self.device, [*commands, Copy(home, readback.staging, home.size)])
            readback.begin()
            self._positions.update({row.slot: row.position + count for row in rows})
            self.session.counters.calls += count
            return Burst(rows, count, readback, home.size, submission)

    def logits(self, rows: Sequence[Row]) -> npt.NDArray[np.float32]:
        """Run the next token of every row through the model; the logits [rows, vocabulary], waited for."""
        with self.device.lock, work_on(self.device):
            self._check(rows, 1)
            self._bring(rows)
            view, model = self._model(rows, 1)
            submit(self.device, [model])
            data = self.device.read(view.buffer, len(rows) * self.model.vocabulary * view.storage.itemsize)
            found = np.frombuffer(data, view.storage.numpy).reshape(len(rows), -1)
            return found.astype(np.float32)

    def close(self) -> None:
        """Free what is its own. Sequences in its slots are of no use any more."""
        with self.device.lock:
            if not self._is_closed:
                self._is_closed = True
                self._single.slots = None
                self.states.close()
                self._drawing_states.close()
                self.session.close()
                self.device.free(self._chosen)

    # What the GPU is told --------------------------------------------------------------------------

    @property
    def _shared(self) -> dict[PlanBuffer, Buffer]:
        """Where drawing leaves tokens and positions: where the model finds them."""
        return {
            State(TOKENS): self.states[State(self.batched.tokens)],
            State(POSITIONS): self.states[State(self.batched.positions)],
        }

    def _model(self, rows: Sequence[Row], count: int) -> tuple[View, Replay]:
        """Where the logits of all rows will lie, and what makes them."""
        context = max(row.position for row in rows) + count
        inputs = (self._slots_of(len(rows)), context)
        recording, numbers = self.session.ready(inputs)
        (logits,) = self.session.outputs(recording, numbers, self.states)
        assert isinstance(logits, View)
        flat = View(
            logits.buffer, 0, (self._padded(len(rows)), self.model.vocabulary), logits.dtype, logits.storage
        )
        return flat, self.session.bound(inputs, self.states, {})

    def _slots_of(self, count: int) -> View:
        return View(self._chosen, 0, (self._padded(count),), DType.I32, Storage.I32)

    def _padded(self, count: int) -> int:
        """The number of rows that a plan is made for: those past the end are nobody's."""
        step = 1 if count <= ROWS_EXACT else 2 if count <= 2 * ROWS_EXACT else 4
        return min(-(-count // step) * step, self.slots.count)

    def _bring(self, rows: Sequence[Row]) -> None:
        """Write what the GPU does not have: who takes part, tokens and positions of those who come in."""
        chosen = tuple(row.slot for row in rows) + (-1,) * (self._padded(len(rows)) - len(rows))
        if chosen != self._rows:
            self._rows = ()
            self.device.write(self._chosen, np.array(chosen, np.int32))
            self._rows = chosen
        for row in rows:
            if row.token is not None:
                self._write(self.batched.tokens, row.slot, row.token)
            if self._positions.get(row.slot) != row.position:
                self._write(self.batched.positions, row.slot, row.position)

    def _write(self, state: int, slot: int, word: int) -> None:
        self.device.write(self.states[State(state)], np.array([word], np.int32), 4 * slot)

    def _check(self, rows: Sequence[Row], count: int) -> None:
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
            if row.token is not None and not 0 <= row.token < self.model.vocabulary:
                raise InputError(f"token {row.token} is outside the vocabulary of {self.model.vocabulary}")


def _batched(model: LanguageModel, slots: int) -> BatchedGraph:
    name = model.program.file.name
    if model.delegate is None or not model.is_resident:
        raise UnsupportedError(f"{name} cannot be batched: its steps go through the host")
    (graph,) = model.program.graphs(model.method.name)
    return batch(graph, slots)


def _odd(size: int) -> str:
    return f"a cache of {size:,} bytes, which is no multiple of {SLOT_ALIGNMENT}, cannot lie beside others"
