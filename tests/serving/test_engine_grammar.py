"""Requests with and without a grammar run together: each gets the same answer as it gets alone. Masks are
computed in worker threads: each once, in order, and failures are reported."""

from __future__ import annotations

import gc
import re
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue

import numpy as np
import numpy.typing as npt
import pytest
from byte_tokenizer import ByteTokenizer
from engine_fixtures import MODEL, PATIENCE, A, B, alone, asked, either_way, tokens

from pteron import Device, DeviceError
from pteron.llm import LLM, Grammar, LanguageModel, Matcher, Piece, Sampling
from pteron.llm.engine import grammar_masks
from pteron.llm.engine.grammar_masks import THREADS, MaskWorkers, PendingMask
from pteron.serving import Engine, Request

pytest.importorskip("llguidance", reason="needs the extra `serve`")
PATTERN = "[a-f]{3,9} (one|two)!"
DRAWN = Sampling(temperature=1.5, seed=3, top_logprobs=2)


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    grammar = Grammar.regex(ByteTokenizer(), PATTERN)
    return [
        asked(A, 30, grammar=grammar),
        asked(B, 20),
        asked(B, 30, grammar=grammar, sampling=DRAWN, stop_ids=None),
        asked(A, 20, sampling=DRAWN),
        asked(A, 5, grammar=grammar),
    ]


@pytest.fixture(scope="module")
def expected(device: Device, requests: list[Request]) -> list[list[Piece]]:
    with LLM(MODEL, ByteTokenizer(), device=device) as llm:
        return [alone(llm, request) for request in requests]


@pytest.mark.long(every=2)
@pytest.mark.parametrize("way", ["together", "one by one", "through the host"])
def test_beside_others(
    tiny_llm: LLM,
    requests: list[Request],
    expected: list[list[Piece]],
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    if way == "through the host":
        monkeypatch.setattr(LanguageModel, "is_resident", False)
    with Engine(tiny_llm, batched=None if way == "together" else False) as engine:
        answers = [engine.submit(request) for request in requests]
        for answer, right in zip(answers, expected, strict=True):
            found = answer.pieces()
            assert [(piece.token, piece.text) for piece in found] == [
                (piece.token, piece.text) for piece in right
            ]
            assert [len(piece.top) for piece in found] == [len(piece.top) for piece in right]
    assert [answer.finish_reason for answer in answers] == ["stop", "length", "stop", "length", "length"]
    for answer in (answers[0], answers[2]):
        assert re.fullmatch(PATTERN, answer.text())


class BlockedMasks:
    """Blocks the computation of masks until `go`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[str] = []  # names of the threads that computed masks
        self._reached, self._free = threading.Semaphore(0), threading.Event()
        mask = Matcher.mask

        def holding(matcher: Matcher) -> npt.NDArray[np.uint32]:
            self.threads.append(threading.current_thread().name)
            self._reached.release()
            assert self._free.wait(PATIENCE)
            return mask(matcher)

        monkeypatch.setattr(Matcher, "mask", holding)

    def reached(self) -> None:
        assert self._reached.acquire(timeout=PATIENCE)

    def go(self) -> None:
        self._free.set()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[BlockedMasks]:
    made = BlockedMasks(monkeypatch)
    yield made
    made.go()


def mask_threads() -> int:
    return sum(thread.name == "pteron masks" for thread in threading.enumerate())


def wait_for_no_threads() -> None:
    until = time.monotonic() + PATIENCE
    while mask_threads() and time.monotonic() < until:
        time.sleep(0.001)
    assert not mask_threads()


@pytest.mark.long(every=2)
@either_way
def test_other_requests_continue_while_a_mask_is_computed(
    expected: list[list[Piece]], engine: Engine, requests: list[Request], held: BlockedMasks
) -> None:
    answer = engine.submit(requests[0])
    held.reached()
    for request, right in ((requests[1], expected[1]), (requests[3], expected[3])):
        assert tokens(engine.submit(request).pieces()) == tokens(right)
    assert held.threads == ["pteron masks"]
    assert not answer.finish_reason
    held.go()
    assert tokens(answer.pieces()) == tokens(expected[0])


@either_way
def test_ends_while_its_mask_is_computed(engine: Engine, requests: list[Request], held: BlockedMasks) -> None:
    """A request that is cancelled or times out while its mask is computed ends at once and frees its
    sequence. The mask of a cancelled request that still waits for a worker is never computed."""
    answers = [
        engine.submit(requests[0]),
        engine.submit(asked(B, 30, grammar=requests[0].grammar, seconds=0.2)),
        engine.submit(requests[2]),
    ]
    held.reached()
    held.reached()
    answers[0].cancel()
    assert [answer.pieces() for answer in answers[:2]] == [[], []]
    assert [answer.finish_reason for answer in answers] == ["cancelled", "time", ""]
    answers[2].cancel()
    assert answers[2].pieces() == []
    assert len(engine.submit(requests[1]).pieces()) == 20
    assert engine.load.running == 0
    held.go()
    text = engine.submit(requests[0]).text()
    assert re.fullmatch(PATTERN, text)
    assert len(held.threads) < len(text) + 4  # the mask of the third request was never computed


def test_sleeps_while_a_mask_is_computed(
    engine: Engine, requests: list[Request], held: BlockedMasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = 0
    parts = engine.scheduler.stepping.stepper.parts

    def counting(tracks: list[object]) -> object:
        nonlocal turns
        turns += 1
        return parts(tracks)  # type: ignore[arg-type]  # as they come

    monkeypatch.setattr(engine.scheduler.stepping.stepper, "parts", counting)
    answer = engine.submit(requests[4])
    held.reached()
    time.sleep(0.3)
    assert turns < 100  # a busy loop would take thousands
    held.go()
    assert len(answer.pieces()) == 5


@pytest.mark.long(every=2)
@pytest.mark.parametrize("way", ["closed", "dropped"])
def test_an_engine_ends_while_masks_are_computed(
    tiny_llm: LLM, requests: list[Request], held: BlockedMasks, way: str
) -> None:
    engine = Engine(tiny_llm)
    assert len(engine.submit(requests[1]).pieces()) == 20
    assert not mask_threads()  # a request without a grammar starts none
    answers = [engine.submit(request) for request in (requests[0], requests[2])]
    held.reached()
    held.reached()
    if way == "closed":
        engine.close()
        for answer in answers:
            with pytest.raises(DeviceError, match="closed"):
                answer.pieces()
    del engine, answers
    gc.collect()
    held.go()
    wait_for_no_threads()
    with Engine(tiny_llm) as other:
        assert re.fullmatch(PATTERN, other.submit(requests[0]).text())
    wait_for_no_threads()


@pytest.mark.long(every=2)
@either_way
def test_a_mask_that_fails(
    expected: list[list[Piece]], engine: Engine, requests: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mask fails while its request generates; the other requests with the same grammar continue."""
    mask, masks = Matcher.mask, 0
    failed: list[Matcher] = []

    def failing(matcher: Matcher) -> npt.NDArray[np.uint32]:
        nonlocal masks
        masks += 1
        if masks == 7:
            failed.append(matcher)
            raise MemoryError("no room for a mask")
        assert matcher not in failed
        return mask(matcher)

    monkeypatch.setattr(Matcher, "mask", failing)
    answers = [engine.submit(requests[index]) for index in (0, 1, 2, 0)]
    errors = 0
    for answer, index in zip(answers, (0, 1, 2, 0), strict=True):
        try:
            assert tokens(answer.pieces()) == tokens(expected[index])
        except MemoryError:
            errors += 1
    assert errors == len(failed) == 1


# Worker threads ----------------------------------------------------------------------------------


class Slow(Matcher):
    """A matcher that computes its mask only after an event is set."""

    def __init__(self, gate: threading.Event) -> None:
        self._gate = gate

    def mask(self) -> npt.NDArray[np.uint32]:
        assert self._gate.wait(PATIENCE)
        return np.zeros(1, np.uint32)


def notifications(queue: SimpleQueue[bool], masks: list[PendingMask]) -> int:
    """The number of notifications until all masks are computed."""
    count = 0
    while not all(mask.is_done for mask in masks):
        queue.get(timeout=PATIENCE)
        count += 1
    return count


def test_many_masks_notify_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_masks, "NOTIFY_INTERVAL", PATIENCE)
    queue: SimpleQueue[bool] = SimpleQueue()
    workers, gate = MaskWorkers(lambda: queue.put(True)), threading.Event()
    masks = [workers.request(Slow(gate)) for _ in range(50)]
    gate.set()
    assert notifications(queue, masks) <= THREADS
    workers.close()


def test_the_first_mask_notifies_before_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_masks, "NOTIFY_INTERVAL", 0.0)
    queue: SimpleQueue[bool] = SimpleQueue()
    workers, gate, later = MaskWorkers(lambda: queue.put(True)), threading.Event(), threading.Event()
    gate.set()
    first, *_ = masks = [workers.request(Slow(each)) for each in (gate, later, later, later)]
    queue.get(timeout=PATIENCE)
    assert first.is_done
    assert not masks[-1].is_done
    later.set()
    notifications(queue, masks)
    workers.close()
