"""stories15M in float32, exported from its weights, against eager PyTorch. Heavy: minutes, and a download.

scripts/test --heavy tests/llm/test_stories_fp32.py
"""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from perplexity import perplexity

from pteron.llm import LLM
from pteron.llm.export import export_llm

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((ROOT / "tests/fixtures/llm/stories15m.json").read_text())
    return loaded


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    fetch = runpy.run_path(str(ROOT / "examples/stories15m/make.py"))["fetch"]
    weights = fetch(tmp_path_factory.mktemp("weights"))
    folder = export_llm(weights, tmp_path_factory.mktemp("made") / "fp32", quantize=None, embedding_bits=None)
    with LLM(folder) as made:
        yield made


def test_greedy_equals_eager(stories: LLM, golden: dict[str, Any]) -> None:
    pieces = stories.generate(golden["prompt_ids"], max_new_tokens=200, stop_ids=())
    assert [piece.token for piece in pieces] == golden["float32"]["greedy"]


def test_perplexity_agrees_with_eager(stories: LLM, golden: dict[str, Any]) -> None:
    stories.reset()
    found = perplexity(stories.model, golden["text_ids"])
    stories.reset()
    assert found == pytest.approx(golden["float32"]["perplexity"], rel=0.005)
