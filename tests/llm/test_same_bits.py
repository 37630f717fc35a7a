"""The same prompt, settings and seed give the same bits in every stream, thread, model and process."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from itertools import zip_longest

import pytest
from byte_tokenizer import ByteTokenizer
from llm_fixtures import TINY, A, run_in_threads

from pteron import Device
from pteron.llm import LLM, Sampling

IDS = A
COUNT = 12
SAMPLINGS = [
    Sampling(temperature=0.9, top_k=50, top_p=0.9, repetition_penalty=1.2, seed=seed) for seed in (4, 5)
]
Bits = list[tuple[int, str]]


def bits(llm: LLM, sampling: Sampling, resident: bool | None = None) -> Bits:
    """Tokens and the bits of their log-probabilities, for a prompt that is prefilled completely."""
    stream = llm.generate(IDS, max_new_tokens=COUNT, stop_ids=(), sampling=sampling, resident=resident)
    return [(piece.token, piece.logprob.hex()) for piece in stream][:COUNT]


def answers(llm: LLM) -> list[Bits]:
    """The bits for each setting, alone."""
    found = []
    for sampling in SAMPLINGS:
        llm.reset()
        found.append(bits(llm, sampling))
    return found


def test_again_and_again(routed_llm: LLM) -> None:
    """In bursts of any length, and step by step."""
    found: list[Bits] = []
    for steps in (1, 2, 5, 12):
        routed_llm.reset()
        routed_llm.model.pace.steps = steps
        found.append(bits(routed_llm, SAMPLINGS[0]))
    routed_llm.reset()
    found.append(bits(routed_llm, SAMPLINGS[0], resident=False))
    assert len({tuple(each) for each in found}) == 1
    routed_llm.reset()
    assert [token for token, _ in bits(routed_llm, SAMPLINGS[1])] != [token for token, _ in found[0]]


def test_streams_side_by_side(llm: LLM) -> None:
    """Each stream prefills the whole prompt into its own sequence."""
    alone = answers(llm)
    llm.reset()
    streams = [
        llm.generate(IDS, max_new_tokens=COUNT, stop_ids=(), sampling=sampling) for sampling in SAMPLINGS * 2
    ]
    columns: list[Bits] = [[] for _ in streams]
    for pieces in zip_longest(*streams):
        for column, piece in zip(columns, pieces, strict=True):
            column += [(piece.token, piece.logprob.hex())] if piece else []
    assert [column[:COUNT] for column in columns] == alone * 2


def test_threads(llm: LLM) -> None:
    """Four threads, each with an empty sequence of its own, give the same bits as one thread."""
    alone = bits(llm, SAMPLINGS[0])
    llm.reset()
    all_have_one = threading.Barrier(4)

    def work(_: int) -> None:
        stream = llm.generate(IDS, max_new_tokens=COUNT, stop_ids=(), sampling=SAMPLINGS[0])
        first = next(stream)
        all_have_one.wait(60)
        pieces = [first, *stream][:COUNT]
        assert [(piece.token, piece.logprob.hex()) for piece in pieces] == alone

    run_in_threads(work, range(4))


@pytest.mark.long
def test_models_and_processes(device: Device) -> None:
    with LLM(TINY, ByteTokenizer(), device=device) as llm:
        here = answers(llm)
    with LLM(TINY, ByteTokenizer(), device=device) as llm:
        assert bits(llm, SAMPLINGS[0]) == here[0]
    ended = subprocess.run(
        [sys.executable, __file__], capture_output=True, text=True, check=True, timeout=120
    )
    assert [[tuple(pair) for pair in each] for each in json.loads(ended.stdout)] == here


def test_what_the_cache_holds_changes_last_bits_alone(routed_llm: LLM) -> None:
    """With a cached prefix, other kernels prefill one token instead of forty: the tokens are the same."""
    routed_llm.reset()
    whole = bits(routed_llm, SAMPLINGS[0])
    reused = bits(routed_llm, SAMPLINGS[0])
    assert routed_llm.statistics.reused_tokens == len(IDS) - 1
    assert [token for token, _ in reused] == [token for token, _ in whole]
    assert [float.fromhex(text) for _, text in reused] == pytest.approx(
        [float.fromhex(text) for _, text in whole], abs=1e-5
    )
    assert bits(routed_llm, SAMPLINGS[0]) == reused


if __name__ == "__main__":
    with LLM(TINY, ByteTokenizer()) as model:
        print(json.dumps(answers(model)))
