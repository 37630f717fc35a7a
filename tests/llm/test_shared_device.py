"""A language model and other programs run on one device at the same time: each result is right."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np

import pteron
from pteron.llm import LanguageModel, Sampler, Sampling, generate_step

FIXTURES = Path(__file__).parents[1] / "fixtures"
PROMPT = [5, 17, 99]


def test_a_loop_beside_other_calls() -> None:
    model = LanguageModel(pteron.load(FIXTURES / "models" / "tiny_llama_q4.pte"))
    sampler = Sampler(model.device, model.vocabulary, Sampling())
    alone = [step.token for step in generate_step(model, sampler, PROMPT, 30)]
    golden = np.load(FIXTURES / "programs" / "mlp.npz")
    method = pteron.load(FIXTURES / "programs" / "mlp.pte")["forward"]
    ended = threading.Event()
    wrong: list[float] = []

    def call_again_and_again() -> None:
        while not ended.is_set():
            (found,) = method(golden["case0_input0"])
            wrong.append(float(np.abs(found - golden["case0_output0"]).max()))

    other = threading.Thread(target=call_again_and_again)
    other.start()
    try:
        for _ in range(3):
            model.reset()
            assert [step.token for step in generate_step(model, sampler, PROMPT, 30)] == alone
    finally:
        ended.set()
        other.join()
    assert len(wrong) > 3
    assert max(wrong) < 1e-5
