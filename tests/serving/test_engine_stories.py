"""The engine on a model whose states are more than caches: rewrites add some, numbered as they come."""

from __future__ import annotations

from pteron.llm import LLM
from pteron.serving import Engine, Request


def test_side_by_side_as_alone(stories: LLM, stories_engine: Engine) -> None:
    prompts = [stories.encode(text) for text in ("Once upon a time", "The dog", "Once upon a time there")]
    alone = ["".join(piece.text for piece in stories.generate(ids, max_new_tokens=12)) for ids in prompts]
    for _ in range(2):  # the second time in slots that others had
        answers = [stories_engine.submit(Request(ids, 12)) for ids in prompts]
        assert [answer.text() for answer in answers] == alone
