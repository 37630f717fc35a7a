"""Grammar masks are computed in worker threads: each once, in order, and failures are reported."""

from __future__ import annotations

import threading
from queue import SimpleQueue

import numpy as np
import numpy.typing as npt
import pytest
from engine_fixtures import PATIENCE

from pteron.llm import Matcher
from pteron.llm.engine import grammar_masks
from pteron.llm.engine.grammar_masks import THREADS, MaskWorkers, PendingMask


class Slow(Matcher):
    """A matcher that computes its mask only after an event is set."""

    def __init__(self, gate: threading.Event) -> None:
        self._gate = gate

    def mask(self) -> npt.NDArray[np.uint32]:
        assert self._gate.wait(PATIENCE)
        return np.zeros(1, np.uint32)


def heard(told: SimpleQueue[bool], masks: list[PendingMask]) -> int:
    """The number of notifications until all masks are computed."""
    count = 0
    while not all(mask.is_done for mask in masks):
        told.get(timeout=PATIENCE)
        count += 1
    return count


def test_many_are_told_of_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_masks, "NOTIFY_INTERVAL", PATIENCE)
    told: SimpleQueue[bool] = SimpleQueue()
    found, gate = MaskWorkers(lambda: told.put(True)), threading.Event()
    masks = [found.request(Slow(gate)) for _ in range(50)]
    gate.set()
    assert heard(told, masks) <= THREADS
    found.close()


def test_each_that_is_asked_for_alone_is_told_of() -> None:
    told: SimpleQueue[bool] = SimpleQueue()
    found, gate = MaskWorkers(lambda: told.put(True)), threading.Event()
    gate.set()
    for _ in range(100):
        mask = found.request(Slow(gate))
        told.get(timeout=PATIENCE)
        assert mask.is_done
    found.close()


def test_some_are_told_of_before_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_masks, "NOTIFY_INTERVAL", 0.0)
    told: SimpleQueue[bool] = SimpleQueue()
    found, gate, later = MaskWorkers(lambda: told.put(True)), threading.Event(), threading.Event()
    gate.set()
    first, *_ = masks = [found.request(Slow(each)) for each in (gate, later, later, later)]
    told.get(timeout=PATIENCE)
    assert first.is_done
    assert not masks[-1].is_done
    later.set()
    heard(told, masks)
    found.close()
