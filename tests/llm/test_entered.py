"""A signal handler uses the model that it interrupts: the call is refused, or both results are right."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from byte_tokenizer import ByteTokenizer
from interruption import SignalAfter, moments

from pteron import Device, DeviceError, InputError
from pteron.llm import LLM, Piece, Sampler, Sampling

MODELS = Path(__file__).parents[1] / "fixtures" / "models"
A = [1, *range(40, 80)]
B = [*A[:20], 200, 90, 17, 111, 5]
COUNT = 4
SEEDED = Sampling(temperature=0.8, top_k=20, repetition_penalty=1.3, seed=5)


def load(device: Device) -> LLM:
    return LLM(MODELS / "tiny_llama_q4.pte", ByteTokenizer(), device=device)


@pytest.fixture
def llm(device: Device) -> Iterator[LLM]:
    with load(device) as made:
        yield made


def tokens(llm: LLM, ids: list[int], resident: bool | None = None) -> list[int]:
    stream = llm.generate(ids, max_new_tokens=COUNT, stop_ids=(), resident=resident, sampling=SEEDED)
    return [piece.token for piece in stream][:COUNT]


class Handler:
    """Calls `work`, counts successes, and counts and swallows re-entrancy errors."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self.refused = 0
        self.done = 0

    def __call__(self) -> None:
        try:
            self._work()
            self.done += 1
        except DeviceError as error:
            if "re-entrant call: a signal handler or finalizer" not in str(error):
                raise
            self.refused += 1


@pytest.mark.long(every=2)
@pytest.mark.parametrize("resident", [None, False], ids=["resident", "steps"])
def test_a_handler_that_generates(llm: LLM, resident: bool | None) -> None:
    expected = []
    for ids in (A, B):
        llm.reset()
        expected.append(tokens(llm, ids, resident))
    inner: list[list[int]] = []
    handler = Handler(lambda: inner.append(tokens(llm, B, resident)))
    for seconds in moments(lambda: tokens(llm, A, resident), 12):
        llm.reset()
        with SignalAfter(seconds, handler):
            assert tokens(llm, A, resident) == expected[0]
        assert [tokens(llm, ids, resident) for ids in (A, B)] == expected
    assert handler.refused
    assert all(found == expected[1] for found in inner)


def reading(stream: Iterator[Piece], found: list[int]) -> None:
    found.append(next(stream).token)


def test_a_handler_that_reads_another_stream(llm: LLM) -> None:
    expected = [tokens(llm, ids) for ids in (A, B)]
    for seconds in moments(lambda: tokens(llm, A), 12):
        other = llm.generate(B, max_new_tokens=COUNT, stop_ids=(), sampling=SEEDED)
        found = [next(other).token]
        handler = Handler(partial(reading, other, found))
        with SignalAfter(seconds, handler):
            assert tokens(llm, A) == expected[0]
        found += [piece.token for piece in other]  # empty if it was refused
        assert found == expected[1][: len(found)]


def test_a_handler_that_closes(device: Device) -> None:
    """A signal handler (such as SIGTERM's) calls close. During a call on the same thread this is refused as
    re-entrant; at other moments the stream ends."""
    refused = 0
    for fraction in range(1, 10):
        with load(device) as llm:
            expected = tokens(llm, A)
            handler = Handler(llm.close)
            (whole,) = moments(lambda llm=llm: tokens(llm, A), 1)  # type: ignore[misc]
            with SignalAfter(whole * fraction / 10, handler):
                try:
                    assert tokens(llm, A) == expected
                except DeviceError as error:
                    if not handler.done or "closed" not in str(error):
                        raise
            if handler.refused:
                assert tokens(llm, A) == expected
        refused += handler.refused
    assert refused


ENDING = """
import sys, threading, time
sys.path[:0] = [sys.argv[1]]
from byte_tokenizer import ByteTokenizer
from pteron.llm import LLM

llm = LLM(sys.argv[2], ByteTokenizer())

def work():
    while True:
        list(llm.generate([1, 40, 50], max_new_tokens=20, stop_ids=()))

left = llm.generate([1, 40], max_new_tokens=9, stop_ids=())
next(left)
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
"""


def test_the_end_of_a_process_whose_threads_generate() -> None:
    """The process exits cleanly while daemon threads generate: Python ends them at any point."""
    model = MODELS / "tiny_llama_q4.pte"
    command = [sys.executable, "-c", ENDING, str(Path(__file__).parent), str(model)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_model_taken_over_before_its_first_token(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user prefills the sequence between a stream's cache lookup and its prefill: the stream fails
    with an error, and the next one is right."""
    expected = tokens(llm, A)

    def remember(sampler: Sampler, ids: list[int]) -> None:
        llm.model.prefill([7, 8, 9])

    with monkeypatch.context() as patched:
        patched.setattr(Sampler, "remember", remember)
        with pytest.raises(InputError, match="something else was begun on this sequence"):
            tokens(llm, A)
    assert tokens(llm, A) == expected
