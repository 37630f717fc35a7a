"""A tiny model, what it answers to one request alone, and an engine whose thread can be watched and held."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from byte_tokenizer import ByteTokenizer

from pteron import Device
from pteron.llm import LLM, Drawn, LanguageModel, Piece
from pteron.llm.engine.answer import Job
from pteron.llm.engine.batched_model import BatchedModel, BatchRow, BatchSubmission
from pteron.llm.engine.running import RunningRequest
from pteron.llm.engine.scheduler import Scheduler
from pteron.llm.engine.steppers import Submission
from pteron.llm.text_model import TextModel
from pteron.serving import Answer, Engine, Request

MODEL = Path(__file__).parent / "fixtures" / "models" / "tiny_llama_q4.pte"
CHUNK = 4  # tokens: a prompt of a few dozen is a long one
A = (1, *range(40, 60))
B = (*A[:9], 200, 90, 17, 111, 5)
SHORT = (7, 9)
PATIENCE = 60.0  # seconds; a longer wait means a hang


@pytest.fixture
def tiny_llm(device: Device, monkeypatch: pytest.MonkeyPatch) -> Iterator[LLM]:
    """A model that reads prompts in small chunks."""

    def chunks(_: LanguageModel, ids: Any) -> list[list[int]]:
        return [list(ids[start : start + CHUNK]) for start in range(0, len(ids), CHUNK)]

    monkeypatch.setattr(LanguageModel, "chunks", chunks)
    with LLM(MODEL, ByteTokenizer(), device=device) as made:
        yield made


def alone(llm: TextModel, request: Request) -> list[Piece]:
    """What a request gets on a model that has read nothing else."""
    assert isinstance(llm, LLM)
    llm.reset()
    return list(
        llm.generate(
            request.ids,
            max_new_tokens=request.max_new_tokens,
            sampling=request.sampling,
            grammar=request.grammar,
            stop=request.stop,
            stop_ids=None if request.stop_ids is None else sorted(request.stop_ids),
        )
    )


def same(found: Sequence[Piece | Drawn], expected: Sequence[Piece]) -> None:
    """Check for equal tokens, and log probabilities equal up to the order of float sums."""
    assert [each.token for each in found] == [each.token for each in expected]
    assert [each.logprob for each in found] == pytest.approx([each.logprob for each in expected], abs=1e-4)
    for one, other in zip(found, expected, strict=True):
        assert [token for token, _ in one.top] == [token for token, _ in other.top]
        assert [value for _, value in one.top] == pytest.approx([value for _, value in other.top], abs=1e-4)


def tokens(pieces: list[Piece]) -> list[int]:
    return [piece.token for piece in pieces]


def tokens_alone(llm: TextModel, requests: Sequence[Request]) -> list[list[int]]:
    """The tokens of each request alone; the model is reset afterwards."""
    found = [tokens(alone(llm, request)) for request in requests]
    llm.reset()
    return found


def read_all(answers: Sequence[Answer]) -> list[list[int]]:
    """The tokens of all answers, which are complete then."""
    return [tokens(answer.pieces()) for answer in answers]


def asked(ids: tuple[int, ...] = A, count: int = 8, **settings: Any) -> Request:
    """A request that ends after `count` tokens, unless its settings end it earlier."""
    return Request(ids, count, **{"stop_ids": frozenset(), **settings})


class Watched:
    """A log of the engine thread's actions, in order, as (what, job, count): "hold" with the tokens of the
    prefix that a job waits for, "begin" with its chunks, "prefill", "step" with the steps, and the reason why
    it ends. The thread waits at the action given to `hold` until `go`."""

    def __init__(self, engine: Engine) -> None:
        self.events: list[tuple[str, int, int]] = []
        self._hold: Callable[[str, int], bool] | None = None
        self._reached, self._free = threading.Event(), threading.Event()
        self._engine = engine
        self._watch(engine.scheduler)

    def hold(self, what: str, job: int = 0) -> None:
        """Have it wait after it has done this for a job."""
        self._reached.clear()
        self._free.clear()
        self._hold = lambda *event: event == (what, job)

    def reached(self) -> None:
        """Wait until it waits there."""
        assert self._reached.wait(PATIENCE)

    def submit(self, requests: Sequence[Request], what: str, job: int = 0) -> list[Answer]:
        """Submit requests, and wait until the thread waits at this action."""
        self.hold(what, job)
        answers = [self._engine.submit(request) for request in requests]
        self.reached()
        return answers

    def go(self) -> None:
        self._hold = None
        self._free.set()

    def go_to(self, what: str, job: int) -> None:
        """From where it waits, have it go on until it has done this."""
        waited_for, self._free = self._free, threading.Event()
        self.hold(what, job)
        waited_for.set()
        self.reached()

    def of(self, what: str) -> list[int]:
        """The jobs that this was done for, in order."""
        return [job for name, job, _ in self.events if name == what]

    def _watch(self, scheduler: Scheduler) -> None:
        waits, totals = scheduler.prefix_waits, scheduler.totals
        awaited, started, add, close = (
            waits.tokens_awaited, totals.add_started, scheduler.add, scheduler._close_job
        )  # fmt: skip

        def tokens_awaited(job: Job, running: list[RunningRequest]) -> int:
            is_new = job not in waits
            if (count := awaited(job, running)) and is_new:
                self._note("hold", job.number, count)
            return count

        def add_started(statistics: Any) -> None:
            started(statistics)
            request = scheduler.running[-1]
            self._note("begin", request.job.number, len(request.chunks))

        def add_submission(submission: Submission) -> None:
            add(submission)
            for request in submission.requests:
                self._note("step" if submission.steps else "prefill", request.job.number, submission.steps)

        def close_job(job: Job, reason: str, error: BaseException | None) -> None:
            self._note(reason, job.number, 0)
            close(job, reason, error)

        vars(waits)["tokens_awaited"] = tokens_awaited
        vars(totals)["add_started"] = add_started
        vars(scheduler)["add"] = add_submission
        vars(scheduler)["_close_job"] = close_job

    def _note(self, what: str, job: int, count: int) -> None:
        self.events.append((what, job, count))
        if self._hold and self._hold(what, job):
            self._hold = None
            self._reached.set()
            self._free.wait(PATIENCE)


def at_once(engine: Engine, requests: list[Request]) -> list[Answer]:
    """Submit requests while the first is held at its start, so that all of them run together."""
    watched = Watched(engine)
    answers = watched.submit(requests[:1], "begin", engine.load.requests)
    answers += [engine.submit(request) for request in requests[1:]]
    watched.go()
    return answers


@pytest.fixture
def engine(request: pytest.FixtureRequest, tiny_llm: LLM) -> Iterator[Engine]:
    """One that steps its sequences together; `one_by_one` makes it one that does not."""
    with Engine(tiny_llm, batched=getattr(request, "param", None)) as made:
        yield made


@pytest.fixture
def bursts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """(rows, rows with masks, steps) of every batched submission."""
    made: list[tuple[int, int, int]] = []
    step = BatchedModel.step

    def counting(batched: BatchedModel, rows: list[BatchRow], count: int = 1) -> BatchSubmission:
        burst = step(batched, rows, count)
        made.append((len(rows), sum(row.mask is not None for row in rows), burst.count))
        return burst

    monkeypatch.setattr(BatchedModel, "step", counting)
    return made


one_by_one = pytest.mark.parametrize("engine", [False], indirect=True, ids=["one by one"])
either_way = pytest.mark.parametrize("engine", [True, False], indirect=True, ids=["together", "one by one"])


@pytest.fixture
def watched(engine: Engine) -> Iterator[Watched]:
    made = Watched(engine)
    yield made
    made.go()
