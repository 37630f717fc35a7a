"""A short soak, and what its verdict rests on. The long one is `scripts/soak 5000`."""

from __future__ import annotations

import pytest

from pteron.llm.cache import pool as sequence_pool
from soak.__main__ import soak
from soak.memory import Sample, growths, slope
from soak.rounds import Rounds, WrongAnswer
from soak.server import load


def samples(*resident: int) -> list[Sample]:
    return [Sample(10 * number, size, 0, 0, 5, 2) for number, size in enumerate(resident)]


def test_a_hundred_rounds_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence_pool, "COPIED_MIN", 8)  # so that these short prompts are copied
    # So few rounds still meet new shapes and kernels: 64 kB a round is what these take, not what leaks.
    _, found, rounds = soak(100, seed=1, questions_max=8, bytes_per_round=1 << 16)
    assert all(growth.is_flat for growth in found), "\n".join(map(str, found))
    assert sum(rounds.done.values()) == 100
    assert len(rounds.done) > 10


@pytest.mark.long
def test_a_server_under_load(capsys: pytest.CaptureFixture[str]) -> None:
    assert load(0.2, seed=1) == 0, capsys.readouterr().out
    assert "the server ended with code 0" in capsys.readouterr().out


def test_a_wrong_answer_is_noticed() -> None:
    rounds = Rounds(0, questions_max=1)
    question = rounds.questions[0]
    rounds.answers[question] = [b"another"]
    with pytest.raises(WrongAnswer, match="another answer"):
        rounds._check(question)
    rounds.rest()


def test_growth_is_seen_through_noise() -> None:
    """A leak of a byte a round among jumps of a thousand; and none where there are only jumps."""
    noise = [0, 900, -700, 400, -900, 100, 800, -300, 0, 500] * 3
    steady = [10**6 + jump for jump in noise]
    leaking = [size + 1000 * number for number, size in enumerate(steady)]
    for sizes, is_flat in ((steady, True), (leaking, False)):
        found = {growth.name: growth.is_flat for growth in growths(samples(*sizes), bytes_per_round=50)}
        assert found == {
            "resident": is_flat,
            "buffers": True,
            "uploads": True,
            "files": True,
            "threads": True,
        }


def test_one_odd_sample_moves_nothing() -> None:
    assert slope([(0, 5), (1, 5), (2, 500), (3, 5), (4, 5)]) == 0
