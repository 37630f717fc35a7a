"""Fair scheduling: what the engine thread submits, in which order, and what is in flight while it waits."""

from __future__ import annotations

from itertools import pairwise

import pytest
from engine_fixtures import CHUNK, SHORT, A, B, Watched, asked, one_by_one, read_all

from pteron.llm.engine.scheduler import Scheduler
from pteron.llm.engine.steppers import Arrived
from pteron.llm.engine.turns import SUBMISSIONS
from pteron.llm.model import Pace
from pteron.serving import Engine

LONG = tuple(range(300, 340))
CHUNKS = len(LONG) // CHUNK


@pytest.fixture
def pace(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Pace:
    """The model's pace: one step per submission, without adaptation."""
    monkeypatch.setattr(Pace, "update", lambda *_: None)
    pace = engine.llm.model.pace
    pace.steps = 1
    return pace


def test_a_long_prompt_delays_a_step_by_one_chunk(engine: Engine, watched: Watched, pace: Pace) -> None:
    """Every decoding sequence does one step between two prefill chunks, and one chunk runs between steps."""
    answers = watched.submit([asked(ids, 40) for ids in (A, B)], "step")  # job 0 has the longer prompt
    answers += [engine.submit(asked(LONG, 2))]
    watched.go()
    read_all(answers)
    kinds = [(what, job) for what, job, _ in watched.events]
    reads = [at for at, event in enumerate(kinds) if event == ("prefill", 2)]
    assert len(reads) == CHUNKS
    for start, end in pairwise(reads):
        assert sorted(kinds[start + 1 : end]) == [("step", 0), ("step", 1)]


def test_prompts_are_read_in_turns(engine: Engine, watched: Watched) -> None:
    answers = watched.submit([asked(LONG, 2)] * 3, "prefill")
    watched.go()
    read_all(answers)
    reads = watched.of("prefill")
    assert len(reads) == 3 * CHUNKS
    rest = reads[reads.index(2) :]
    assert [sorted(rest[at : at + 3]) for at in range(0, 9, 3)] == [[0, 1, 2]] * 3


def test_a_newcomer_is_read_after_a_chunk(engine: Engine, watched: Watched) -> None:
    """The prefill of a new request starts after one chunk of the running prompt, or after two if that prompt
    was alone: one more chunk is then queued on the GPU."""
    (first,) = watched.submit([asked(LONG, 2)], "prefill")
    second = engine.submit(asked(SHORT, 2))
    watched.go()
    read_all([second, first])
    assert watched.of("prefill").index(1) <= SUBMISSIONS


def test_a_long_prompt_advances_beside_many_new_ones(engine: Engine, watched: Watched) -> None:
    answers = watched.submit([asked(LONG, 1), *(asked((9, 9, at), 1) for at in range(3, 18))], "prefill")
    watched.go()
    read_all(answers)
    reads = watched.of("prefill")
    others = [sum(job != 0 for job in reads[: at + 1]) for at, job in enumerate(reads) if job == 0]
    assert others[-1] <= CHUNKS


def test_one_alone_steps_in_bursts(engine: Engine, watched: Watched, pace: Pace) -> None:
    pace.steps = 6
    engine.submit(asked(A, 32)).pieces()
    assert [steps for what, _, steps in watched.events if what == "step"] == [6, 6, 6, 6, 6, 1]


@one_by_one
def test_several_share_the_steps_of_a_burst(engine: Engine, watched: Watched, pace: Pace) -> None:
    pace.steps = 12
    answers = watched.submit([asked(ids, 40) for ids in (A[:6], B[4:10], LONG[:6])], "begin")
    watched.go()
    read_all(answers)
    steps = [count for what, _, count in watched.events if what == "step"]
    assert steps.count(4) >= 12
    jobs = watched.of("step")
    shared = jobs[jobs.index(2) :][:18]
    assert [sorted(shared[at : at + 3]) for at in range(0, 18, 3)] == [[0, 1, 2]] * 6


def test_a_newcomer_waits_for_one_burst(engine: Engine, watched: Watched, pace: Pace) -> None:
    pace.steps = 4
    (first,) = watched.submit([asked(A, 40)], "step")
    second = engine.submit(asked(B, 4))
    watched.go()
    read_all([second, first])
    begun = watched.events.index(("begin", 1, len(B) // CHUNK + 1))
    assert sum(what == "step" for what, *_ in watched.events[:begun]) <= SUBMISSIONS


def test_first_come_first_served(engine: Engine, watched: Watched) -> None:
    answers = [engine.submit(asked(ids, 3)) for ids in (A, B, SHORT) * 8]
    read_all(answers)
    assert watched.of("begin") == list(range(24))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_gpu_has_work_while_the_host_waits(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Except for the last steps, the engine never waits for the only submission in flight."""
    waited: list[tuple[int, bool]] = []
    collect = Scheduler.collect

    def noting(scheduler: Scheduler) -> Arrived:
        goes_on = any(request.step < request.count for request in scheduler.running)
        if scheduler.in_flight:
            waited.append((len(scheduler.in_flight) - 1, goes_on))
        return collect(scheduler)

    monkeypatch.setattr(Scheduler, "collect", noting)
    answers = [engine.submit(asked((30 + number, *A), 20)) for number in range(count)]
    read_all(answers)
    assert len(waited) > 6
    assert all(others for others, goes_on in waited if goes_on)
    assert sum(answer.statistics.stalls for answer in answers) <= count
