"""A model whose plan has states other than KV caches: many sequences, each gets its answer as if alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from pteron.llm import LLM
from pteron.serving import Engine, Request

STORIES = Path(__file__).parents[2] / "src" / "pteron" / "models" / "stories15m"
TEXTS = ("Once upon a time", "The dog", "Lily and Tom went to the park. They saw a big")


@pytest.mark.parametrize("batched", [True, False], ids=["together", "one by one"])
def test_stories(batched: bool) -> None:
    with LLM(STORIES) as llm:
        prompts = [llm.encode(text) for text in TEXTS]
        expected = [[piece.token for piece in llm.generate(ids, max_new_tokens=12)] for ids in prompts]
        llm.reset()
        with Engine(llm, batched=batched) as engine:
            answers = [engine.submit(Request(ids, 12)) for ids in prompts]
            assert [[piece.token for piece in answer] for answer in answers] == expected
