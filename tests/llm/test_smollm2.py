"""SmolLM2-135M-Instruct, fetched and exported once, against eager PyTorch. Heavy: minutes, and a download.

scripts/test --heavy tests/llm/test_smollm2.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from perplexity import perplexity

from pteron.llm import LLM
from pteron.llm.catalogue import fetch

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    file = Path(__file__).parents[1] / "fixtures" / "llm" / "smollm2.json"
    loaded: dict[str, Any] = json.loads(file.read_text())
    return loaded


@pytest.fixture(scope="module")
def smollm2() -> Iterator[LLM]:
    with LLM(fetch("smollm2")) as made:
        yield made


def test_it_knows_the_capital_of_france(smollm2: LLM) -> None:
    question = [{"role": "user", "content": "What is the capital of France?"}]
    answer = "".join(piece.text for piece in smollm2.chat(question, max_new_tokens=20))
    assert "Paris" in answer
    assert smollm2.statistics.finish_reason == "stop"


def test_greedy_equals_eager_quantised(smollm2: LLM, golden: dict[str, Any]) -> None:
    pieces = smollm2.generate(golden["prompt_ids"], max_new_tokens=64, stop_ids=())
    assert [piece.token for piece in pieces] == golden["quantized"]["greedy"]


def test_perplexity_agrees_with_eager(smollm2: LLM, golden: dict[str, Any]) -> None:
    smollm2.reset()
    found = perplexity(smollm2.model, golden["text_ids"])
    smollm2.reset()
    assert found == pytest.approx(golden["quantized"]["perplexity"], rel=0.005)
