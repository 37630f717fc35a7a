"""The rounds: what users do, rightly and wrongly, with programs and models that live through many of them."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import numpy as np
import pytest
from interruption import SignalAfter

from soak.questions import (
    MODEL,
    PROMPTS,
    SAMPLINGS,
    STORIES,
    STORY_PROMPTS,
    TOKENS,
    Question,
    all_questions,
    answers,
    path_of,
    stream,
    tokens,
)

sys.path.append(str(Path(__file__).parents[1] / "llm"))
from byte_tokenizer import ByteTokenizer
from faulty import CALLS, Faults
from llm_fixtures import run_in_threads

import pteron
from pteron import Device, InputError, PteronError
from pteron.errors import DeviceError
from pteron.llm import LLM, Piece

Key: TypeAlias = tuple[int | str, int]  # the prompt, by number or as text, and the number of the sampling


class WrongAnswer(Exception):  # noqa: N818  # it is what the soak looks for
    """An answer that is not the one that was noted."""


class Rounds:
    """What is open, what was answered at first, and the rounds over both."""

    def __init__(self, seed: int, questions_max: int = 100, only: Collection[str] = ()) -> None:
        """`questions_max` is how many questions a program is asked, at most; `only` names some kinds of
        rounds, to find out which of them leaves something behind."""
        self.random = Random(seed)
        self.done: Counter[str] = Counter()
        self.device = Device.open()
        self._programs: dict[str, pteron.Program] = {}
        self._llm: LLM | None = None
        self._stories: LLM | None = None
        self._open: list[tuple[Key, Generator[Piece, None, None], list[int]]] = []  # streams, read so far
        self._folder = tempfile.TemporaryDirectory()
        self.questions = all_questions(questions_max, importlib.util.find_spec("torch") is not None)
        self.answers = answers(self.questions)
        self.texts = self._first_texts()
        self._actions: list[tuple[int, Callable[[], None]]] = [
            (40, self.call),
            (8, self.many_shapes),
            (8, self.load_once),
            (12, self.generate),
            (6, self.interleave),
            (8, self.abandon),
            (12, self.read_on),
            (3, self.save_or_restore),
            (2, self.threads),
            (2, self.tell_a_story),
            (5, self.sequence),
            (6, self.hand_in_what_is_wrong),
            (4, self.load_what_is_damaged),
            (5, self.fail_inside_a_call),
            (4, self.fail_inside_a_generation),
            (4, self.interrupt),
            (4, self.close_something),
        ]
        if only:
            self._actions = [pair for pair in self._actions if pair[1].__name__ in only]

    def round(self) -> None:
        """One round; an answer that is wrong raises WrongAnswer."""
        weights, actions = zip(*self._actions, strict=True)
        action = self.random.choices(actions, weights)[0]
        self.done[action.__name__] += 1
        action()

    def rest(self) -> None:
        """Close everything."""
        self._open.clear()
        for program in self._programs.values():
            program.close()
        self._programs.clear()
        for llm in (self._llm, self._stories):
            if llm is not None:
                llm.close()
        self._llm = self._stories = None

    # Calls --------------------------------------------------------------------------------------

    def call(self) -> None:
        self._check(self.random.choice(self.questions))

    def many_shapes(self) -> None:
        """More live shapes than plans are kept for, over the rounds."""
        for question in self.random.sample([q for q in self.questions if q.program == "vision"], 5):
            self._check(question)

    def load_once(self) -> None:
        """A program for one call, from its file or from bytes; closed, or left to the collector."""
        question = self.random.choice(self.questions)
        path = path_of(question.program)
        program = pteron.load(self.random.choice((path, path.read_bytes())))
        self._compare(question, question.ask(program["forward"]))
        if self.random.random() < 0.7:
            program.close()

    def sequence(self) -> None:
        question = self.random.choice(self.questions)
        sequence = self._program(question.program).sequence()
        self._compare(question, question.ask(sequence["forward"]))
        sequence.close()

    def hand_in_what_is_wrong(self) -> None:
        """Too many inputs, another type, a shape that is too large, a method that is not there."""
        question = self.random.choice(self.questions)
        program = self._program(question.program)
        method = program["forward"]
        inputs = question.inputs(method)
        wrong: list[Callable[[], object]] = [
            lambda: method(*inputs, 1),
            lambda: method(*inputs[:-1]),
            lambda: method(np.ones([9] * 9, np.float32), *inputs[1:]),
            lambda: method("text", *inputs[1:]),
            lambda: program["no such method"],
        ]
        try:
            self.random.choice(wrong)()
        except PteronError:
            self._check(question)
        else:
            raise WrongAnswer(f"{question}: wrong inputs were taken")

    def load_what_is_damaged(self) -> None:
        """A file with a few bytes changed: refused, or another program."""
        data = bytearray(path_of(self.random.choice(self.questions).program).read_bytes())
        for _ in range(3):
            data[self.random.randrange(len(data) // 2)] = self.random.randrange(256)
        with suppress(PteronError), pteron.load(bytes(data)) as program:
            for name in program.methods:
                program[name]

    # Generations --------------------------------------------------------------------------------

    def generate(self) -> None:
        key = self._key()
        self._check_text(key)

    def interleave(self) -> None:
        """Two or three streams at once, token by token."""
        keys = [self._key() for _ in range(self.random.choice((2, 3)))]
        rows = list(itertools.zip_longest(*(self._stream(key) for key in keys)))
        for key, column in zip(keys, zip(*rows, strict=True), strict=True):
            self._compare_text(key, tokens(piece for piece in column if piece))

    def abandon(self) -> None:
        """A stream that is closed or dropped before its end."""
        key = self._key()
        pieces = self._stream(key)
        found = tokens(itertools.islice(pieces, self.random.randrange(5)))
        if found != self.texts[key][: len(found)]:
            raise WrongAnswer(f"{key}: {found}")
        if self.random.random() < 0.5:
            pieces.close()

    def read_on(self) -> None:
        """Streams that stay open over the rounds: one more, then some pieces of one of them."""
        key = self._key()
        self._open.append((key, self._stream(key), []))
        key, pieces, found = self._open.pop(self.random.randrange(len(self._open)))
        found += [piece.token for piece in itertools.islice(pieces, self.random.choice((1, 2, TOKENS + 1)))]
        if found[:TOKENS] != self.texts[key][: len(found)]:
            raise WrongAnswer(f"{key}: {found}")
        choice = self.random.randrange(4)
        if choice == 0:
            pieces.close()
        elif choice == 1:  # left to the garbage collector
            cycle: list[Any] = [pieces]
            cycle.append(cycle)
        elif len(self._open) < 8:
            self._open.append((key, pieces, found))

    def save_or_restore(self) -> None:
        path, llm = Path(self._folder.name) / "cache", self._model()
        if not path.exists() or self.random.random() < 0.5:
            with suppress(InputError):  # it has read nothing, or nothing of this prompt
                llm.save(path, self.random.choice((*PROMPTS, None)))
        elif not llm.restore(path):
            raise WrongAnswer("nothing is restored of a cache that was saved")

    def threads(self) -> None:
        self._model()
        run_in_threads(self._check_text, [self._key() for _ in range(4)])

    def tell_a_story(self) -> None:
        self._check_text(self.random.choice([key for key in self.texts if isinstance(key[0], str)]))

    # What goes wrong ----------------------------------------------------------------------------

    def fail_inside_a_call(self) -> None:
        """An error of the device at some point of a load or a call; then the same again, without."""
        question = self.random.choice(self.questions)
        with _failing(self.random), suppress(DeviceError):
            question.ask(self._program(question.program)["forward"])
        self._check(question)

    def fail_inside_a_generation(self) -> None:
        key = self._key()
        with _failing(self.random), suppress(DeviceError):
            self.random.choice((lambda: tokens(self._stream(key)), self.read_on, self.save_or_restore))()
        self._check_text(key)

    def interrupt(self) -> None:
        """Ctrl-C somewhere in a call or a generation."""
        question = self.random.choice(self.questions)
        key = self._key()
        self._program(question.program), self._model()  # what opens them is not what is interrupted
        with suppress(KeyboardInterrupt), SignalAfter(self.random.uniform(0, 0.05)):
            if self.random.random() < 0.5:
                question.ask(self._program(question.program)["forward"])
            else:
                self.random.choice((lambda: tokens(self._stream(key)), self.read_on, self.save_or_restore))()
        self._check(question)
        self._check_text(key)

    def close_something(self) -> None:
        if self._programs and self.random.random() < 0.6:
            self._programs.pop(self.random.choice(list(self._programs))).close()
        elif self._llm is not None:
            pieces = self._stream(next(iter(self.texts)))
            if self.random.random() < 0.5:
                next(pieces)
            if self.random.random() < 0.7:  # otherwise it is left to the collector
                self._llm.close()
            self._llm = None
            for each in (pieces, *(stream for _, stream, _ in self._open)):
                with suppress(PteronError):  # a stream of what is closed ends in an error
                    next(each, None)
            self._open.clear()

    # Answers ------------------------------------------------------------------------------------

    def _key(self) -> Key:
        """A prompt of the tiny model, and a sampling."""
        return self.random.choice([key for key in self.texts if isinstance(key[0], int)])

    def _first_texts(self) -> dict[Key, list[int]]:
        """Tokens by prompt and sampling, each from a model that has read nothing."""
        found: dict[Key, list[int]] = {}
        for prompt, sampling in itertools.product(range(len(PROMPTS)), range(len(SAMPLINGS))):
            self._llm = None
            found[prompt, sampling] = tokens(stream(self._model(), PROMPTS[prompt], SAMPLINGS[sampling]))
        for text in STORY_PROMPTS:
            with LLM(STORIES) as fresh:
                found[text, 0] = tokens(stream(fresh, text, SAMPLINGS[0]))
        self.rest()
        return found

    def _check(self, question: Question) -> None:
        self._compare(question, question.ask(self._program(question.program)["forward"]))

    def _compare(self, question: Question, found: list[bytes]) -> None:
        if found != self.answers[question]:
            raise WrongAnswer(f"{question} has another answer than at the start")

    def _check_text(self, key: Key) -> None:
        self._compare_text(key, tokens(self._stream(key)))

    def _compare_text(self, key: Key, found: list[int]) -> None:
        if found != self.texts[key]:
            raise WrongAnswer(f"{key}: {found}, at the start {self.texts[key]}")

    def _stream(self, key: Key) -> Generator[Piece, None, None]:
        prompt, sampling = key
        if isinstance(prompt, int):
            return stream(self._model(), PROMPTS[prompt], SAMPLINGS[sampling])
        return stream(self._story_teller(), prompt, SAMPLINGS[sampling])

    def _program(self, name: str) -> pteron.Program:
        if name not in self._programs:
            self._programs[name] = pteron.load(path_of(name))
        return self._programs[name]

    def _model(self) -> LLM:
        if self._llm is None:
            self._llm = LLM(MODEL, ByteTokenizer())
        return self._llm

    def _story_teller(self) -> LLM:
        if self._stories is None:
            self._stories = LLM(STORIES)
        return self._stories


@contextmanager
def _failing(random: Random) -> Iterator[None]:
    """One of the next uses of the device fails, before or after its work."""
    calls = CALLS | {"pipelines": (Device, "pipelines")}
    with pytest.MonkeyPatch.context() as patch:
        Faults(patch, calls).arm(random.choice([*calls]), random.randrange(6), after=random.random() < 0.5)
        yield
