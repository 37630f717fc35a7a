"""A device call fails during generation: the stream raises one error, and the next answer is right."""

from __future__ import annotations

import gc
from contextlib import suppress

import pytest
from faulty import CALLS, MESSAGE, Faults
from llm_fixtures import A, B

from pteron import DeviceError
from pteron.llm import LLM, Sampling

COUNT = 5
SEEDED = Sampling(temperature=0.8, top_k=20, repetition_penalty=1.3, seed=5)


def tokens(llm: LLM, ids: list[int], resident: bool | None, sampling: Sampling | None = None) -> list[int]:
    stream = llm.generate(ids, max_new_tokens=COUNT, stop_ids=(), resident=resident, sampling=sampling)
    return [piece.token for piece in stream][:COUNT]


@pytest.mark.long(every=4)
@pytest.mark.parametrize("resident", [None, False], ids=["resident", "stepwise"])
@pytest.mark.parametrize("sampling", [None, SEEDED], ids=["greedy", "seeded"])
def test_every_call_of_every_kind(
    routed_llm: LLM, resident: bool | None, sampling: Sampling | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails each device call in turn, before or after its work: in the prefill, a burst, a readback."""

    llm = routed_llm

    def answers() -> list[list[int]]:
        return [tokens(llm, ids, resident, sampling) for ids in (A, B)]

    expected: list[list[int]] = []
    for ids in (A, B):
        llm.reset()
        expected.append(tokens(llm, ids, resident, sampling))
    faults, failures = Faults(monkeypatch), 0
    # Kernels for GPUs are slow on a CPU, and the calls around them are the same.
    kinds = CALLS if llm.model.device.target.is_cpu else ["submit"]
    for kind in kinds:
        for after in (False, True):
            at = 0
            while True:
                llm.reset()
                faults.arm(kind, at, after=after)
                found = None
                with suppress(DeviceError):
                    found = tokens(llm, A, resident, sampling)
                if not faults.disarm():
                    assert found == expected[0]
                    break
                # None: the stream failed. The stream succeeds if it did not need the failed call any more.
                assert found in (None, expected[0])
                assert answers() == expected, (kind, at, after)
                failures += 1
                at += 1 + at
    assert failures > 2 * len(kinds)
    gc.collect()
    assert llm.pool.live == 1


@pytest.mark.long(every=2)
@pytest.mark.parametrize("kind", ["submit", "peek", "write"])
def test_the_others_go_on(llm: LLM, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that fails does not affect other streams."""
    expected = [tokens(llm, ids, None) for ids in (A, B)]
    faults = Faults(monkeypatch)
    for at in range(2):
        beside = llm.generate(B, max_new_tokens=COUNT, stop_ids=())
        found: list[int] = [next(beside).token]
        faults.arm(kind, at)
        with pytest.raises(DeviceError, match=MESSAGE):
            tokens(llm, A, None)
        assert faults.disarm()
        found += [piece.token for piece in beside]
        assert found[:COUNT] == expected[1]
        assert tokens(llm, A, None) == expected[0]


def test_a_stream_whose_device_fails_at_its_end(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing a stream does not wait for submissions in flight, so it raises no device error."""
    expected = tokens(llm, A, None)
    faults = Faults(monkeypatch)
    stream = llm.generate(A, max_new_tokens=COUNT, stop_ids=())
    next(stream)
    faults.arm("peek", 0)
    stream.close()
    assert faults.disarm()
    assert tokens(llm, A, None) == expected


def test_a_sequence_that_gets_no_memory(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """One stream more than fits in memory: only this stream fails, each time it is tried."""
    expected = [tokens(llm, ids, None) for ids in (A, B)]
    opened = llm.generate(A, max_new_tokens=COUNT, stop_ids=())
    found: list[int] = [next(opened).token]
    faults = Faults(monkeypatch)
    gc.collect()  # excludes what earlier tests left
    in_use = llm.model.device.buffer_bytes
    for at in range(3):
        faults.arm("create", at)
        with pytest.raises(DeviceError, match=MESSAGE):
            tokens(llm, B, None)
        assert faults.disarm()
        gc.collect()
        assert llm.pool.live == 1
        assert llm.model.device.buffer_bytes == in_use
    assert tokens(llm, B, None) == expected[1]
    found += [piece.token for piece in opened]
    assert found[:COUNT] == expected[0]
