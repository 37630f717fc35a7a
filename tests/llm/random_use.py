"""Random use of one language model by streams and threads, with injected faults, checked against an oracle.

A stream must give the tokens that its prompt and settings give on a model without other streams, up to its
end or to an expected error: an injected fault, a close, or too many streams at once.
"""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from byte_tokenizer import ByteTokenizer
from faulty import CALLS, MESSAGE, Faults
from interruption import SignalAfter
from llm_fixtures import TINY, A, B, run_in_threads

import pteron
from pteron import Device, DeviceError, InputError
from pteron.llm import LLM, Piece, Sampling
from pteron.llm.arguments import SEQUENCES_MAX

COUNT = 7
PROMPTS = (tuple(A), tuple(B), tuple(A[:22]), (5, 17, 99, 250, 3), (9,))
SETTINGS = (
    Sampling(),
    Sampling(temperature=0.8, top_k=20, repetition_penalty=1.3, seed=5),
    Sampling(temperature=1.2, top_p=0.9, seed=11),
)


@dataclass(frozen=True)
class Asked:
    """Prompt and settings of a stream."""

    ids: tuple[int, ...]
    sampling: Sampling
    resident: bool | None

    @classmethod
    def at_random(cls, choices: random.Random) -> Asked:
        return cls(choices.choice(PROMPTS), choices.choice(SETTINGS), choices.choice((None, None, False)))

    def of(self, llm: LLM) -> Generator[Piece, None, None]:
        return llm.generate(
            self.ids, max_new_tokens=COUNT, stop_ids=(), sampling=self.sampling, resident=self.resident
        )

    def tokens(self, llm: LLM) -> list[int]:
        return [piece.token for piece in self.of(llm)][:COUNT]  # a last piece may complete a character


def right_answers(device: Device) -> dict[Asked, list[int]]:
    """The expected tokens of each possible request, from a model whose cache is empty."""
    found = {}
    with LLM(TINY, ByteTokenizer(), device=device) as llm:
        for ids in PROMPTS:
            for sampling in SETTINGS:
                for resident in (None, False):
                    llm.reset()
                    asked = Asked(ids, sampling, resident)
                    found[asked] = asked.tokens(llm)
    return found


@dataclass
class Open:
    """An open stream and the tokens read from it."""

    asked: Asked
    stream: Generator[Piece, None, None]
    found: list[int] = field(default_factory=list)
    is_closed_below: bool = False  # its model was


class RandomUse:
    """Performs random actions chosen by a seed, and fails at the first wrong result."""

    def __init__(
        self, seed: int, right: dict[Asked, list[int]], faults: Faults, device: Device, folder: Path
    ) -> None:
        self._seed = seed
        self._choices = random.Random(seed + 1)
        self._saved = folder / "cache"
        self._right = right
        self._faults = faults
        self._device = device
        self._llm = self._load()
        self._open: list[Open] = []
        self.done: list[str] = []  # the actions so far, for debugging

    def run(self, count: int) -> None:
        operations: dict[Callable[[], object], int] = {
            self._begin: 6,
            self._next: 12,
            self._drain: 6,
            self._close_one: 2,
            self._abandon: 2,
            self._forget_in_a_cycle: 1,
            self._reset: 2,
            self._save_or_restore: 3,
            self._threads: 1,
            self._fail: 3,
            self._interrupt: 3,
            self._reload: 1,
        }
        # Interrupts change how many random numbers an action takes, but not which actions come.
        for operation in random.Random(self._seed).choices([*operations], [*operations.values()], k=count):
            self.done.append(operation.__name__)
            operation()
        for each in list(self._open):
            self._read(each, COUNT + 1)
        self._faults.arm("submit", 0)
        with pytest.raises(DeviceError, match=MESSAGE):
            next(iter(self._right)).tokens(self._llm)
        for asked in self._right:  # after all actions the answers must still be right
            assert asked.tokens(self._llm) == self._right[asked], (asked, self.done)
        self._llm.close()

    # What a user may do -------------------------------------------------------------------------

    def _begin(self) -> None:
        asked = Asked.at_random(self._choices)
        self._open.append(Open(asked, asked.of(self._llm)))

    def _next(self) -> None:
        if self._open:
            self._read(self._choices.choice(self._open), 1)

    def _drain(self) -> None:
        if self._open:
            self._read(self._choices.choice(self._open), COUNT + 1)

    def _close_one(self) -> None:
        if self._open:
            self._open.pop(self._choices.randrange(len(self._open))).stream.close()

    def _abandon(self) -> None:
        if self._open:
            del self._open[self._choices.randrange(len(self._open))]

    def _forget_in_a_cycle(self) -> None:
        if self._open:
            cycle: list[Any] = [self._open.pop()]
            cycle.append(cycle)
            del cycle
            gc.collect()

    def _reset(self) -> None:
        self._llm.reset()

    def _reload(self) -> None:
        """Close the model under its streams, half the time while a thread generates."""
        ended: list[BaseException] = []
        thread = None
        if self._choices.random() < 0.5:
            llm, asked = self._llm, Asked.at_random(self._choices)

            def work() -> None:
                try:
                    while True:
                        if asked.tokens(llm) != self._right[asked]:
                            raise AssertionError(asked)
                except BaseException as error:
                    ended.append(error)

            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            thread.join(self._choices.random() * 0.05)
        self._llm.close()
        if thread:
            thread.join(60)
            is_full = isinstance(ended[0], InputError) and "generations are open" in str(ended[0])
            assert is_full or (type(ended[0]) is DeviceError and "closed" in str(ended[0])), ended
        for each in self._open:
            each.is_closed_below = True
        self._llm = self._load()

    def _save_or_restore(self) -> None:
        try:
            if self._choices.random() < 0.5:
                self._llm.save(self._saved, self._choices.choice((*PROMPTS, None)))
            elif self._saved.exists():
                assert self._llm.restore(self._saved) > 0
        except InputError as error:
            if "has read nothing" not in str(error):
                self._expect(error)

    def _threads(self) -> None:
        def work(asked: Asked) -> None:
            try:
                assert asked.tokens(self._llm) == self._right[asked], (asked, self.done)
            except InputError as error:
                if "generations are open" not in str(error):
                    raise

        run_in_threads(work, [Asked.at_random(self._choices) for _ in range(4)])

    def _fail(self) -> None:
        """Let the device fail somewhere in the next few calls."""
        at = self._choices.randrange(6)
        self._faults.arm(self._choices.choice([*CALLS]), at, after=self._choices.random() < 0.5)
        try:
            self._choices.choice(
                (self._next, self._drain, self._close_one, self._answer, self._save_or_restore)
            )()
        except DeviceError as error:  # from a stream made here; _read handles errors of open streams
            self._expect(error)
        finally:
            self._faults.disarm()

    def _interrupt(self) -> None:
        """Ctrl-C somewhere in what follows."""
        operation = self._choices.choice(
            (self._next, self._drain, self._close_one, self._reset, self._answer, self._save_or_restore)
        )
        with suppress(KeyboardInterrupt), SignalAfter(self._choices.expovariate(1 / 0.02)):
            operation()

    def _answer(self) -> None:
        asked = Asked.at_random(self._choices)
        try:
            assert asked.tokens(self._llm) == self._right[asked], (asked, self.done)
        except InputError as error:
            self._expect(error)

    # What must come out -------------------------------------------------------------------------

    def _read(self, each: Open, count: int) -> None:
        right = self._right[each.asked]
        try:
            for _ in range(count):
                piece = next(each.stream, None)
                if piece is None:
                    assert each.found[:COUNT] == right, (each.asked, each.found, right, self.done)
                    self._open.remove(each)
                    return
                each.found.append(piece.token)
                assert each.found[:COUNT] == right[: len(each.found)], (each, right, self.done)
        except (DeviceError, InputError) as error:
            self._open.remove(each)
            is_below = each.is_closed_below and "closed" in str(error)
            if not is_below:
                self._expect(error)
        except KeyboardInterrupt:
            self._open.remove(each)
            raise

    def _expect(self, error: pteron.PteronError) -> None:
        """Accept only expected errors: an injected fault, or too many streams."""
        is_full = "generations are open" in str(error) and len(self._open) >= SEQUENCES_MAX - 4
        assert MESSAGE in str(error) or is_full, (error, self.done)

    def _load(self) -> LLM:
        return LLM(TINY, ByteTokenizer(), device=self._device)
