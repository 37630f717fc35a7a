"""Log-probabilities in OpenAI's two formats, biases and penalties, compared with the model's own."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from byte_tokenizer import ByteTokenizer
from http_fixtures import NAME

from pteron.llm import LLM, Piece, Sampling
from pteron.serving.api.chunks import logprob_entry, logprob_lists

PROMPT = "Once upon a time, there was a"
MESSAGES: Any = [{"role": "user", "content": "Tell me about a cat."}]


def alone(llm: LLM, count: int, **settings: Any) -> list[Piece]:
    return list(llm.generate(PROMPT, max_new_tokens=count, sampling=Sampling(**settings)))


def test_a_chat_reports_each_token(client: openai.OpenAI, stories: LLM) -> None:
    asked: dict[str, Any] = {"model": NAME, "messages": MESSAGES, "max_tokens": 11, "logprobs": True}
    found = client.chat.completions.create(**asked, top_logprobs=4).choices[0]
    expected = list(stories.chat(MESSAGES, max_new_tokens=11, sampling=Sampling(top_logprobs=4)))
    assert found.logprobs is not None
    entries = found.logprobs.content
    assert entries is not None
    assert len(entries) == 11
    for entry, piece in zip(entries, expected, strict=True):
        assert entry.logprob == pytest.approx(piece.logprob, abs=1e-4)
        assert bytes(entry.bytes or []) == stories.tokenizer.token_bytes(piece.token)
        assert [top.logprob for top in entry.top_logprobs] == pytest.approx(
            [logprob for _, logprob in piece.top], abs=1e-4
        )
        assert entry.top_logprobs[0].token == entry.token  # it is greedy
        assert len(entry.top_logprobs) == 4
    assert b"".join(bytes(entry.bytes or []) for entry in entries).decode() == found.message.content


def test_streamed_equals_unstreamed(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": NAME, "messages": MESSAGES, "max_tokens": 9, "logprobs": True}
    whole = client.chat.completions.create(**asked, top_logprobs=2).choices[0].logprobs.content
    chunks = list(client.chat.completions.create(**asked, top_logprobs=2, stream=True))
    parts = [chunk.choices[0].logprobs for chunk in chunks]
    streamed = [entry for part in parts if part for entry in part.content]
    assert [entry.token for entry in streamed] == [entry.token for entry in whole]
    assert [entry.logprob for entry in streamed] == pytest.approx(
        [entry.logprob for entry in whole], abs=1e-4
    )


def test_without_alternatives(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": NAME, "messages": MESSAGES, "max_tokens": 3}
    entries = client.chat.completions.create(**asked, logprobs=True).choices[0].logprobs.content
    assert [entry.top_logprobs for entry in entries] == [[], [], []]
    assert client.chat.completions.create(**asked).choices[0].logprobs is None


def test_a_completion_reports_lists(client: openai.OpenAI, stories: LLM) -> None:
    found = client.completions.create(model=NAME, prompt=PROMPT, max_tokens=10, logprobs=3).choices[0]
    expected = alone(stories, 10, top_logprobs=3)
    assert found.logprobs is not None
    lists = found.logprobs
    assert lists.tokens is not None
    assert "".join(lists.tokens) == found.text
    assert lists.token_logprobs == pytest.approx([piece.logprob for piece in expected], abs=1e-4)
    assert lists.text_offset == [sum(map(len, lists.tokens[:place])) for place in range(10)]
    assert lists.top_logprobs is not None
    for token, top, logprob in zip(lists.tokens, lists.top_logprobs, lists.token_logprobs or [], strict=True):
        assert len(top) == 3
        assert top[token] == pytest.approx(logprob, abs=1e-4)
    none = client.completions.create(model=NAME, prompt=PROMPT, max_tokens=2, logprobs=0).choices[0].logprobs
    assert none is not None
    assert len(none.tokens or []) == 2


def test_held_back_text_has_no_logprobs(client: openai.OpenAI) -> None:
    """Text that may begin a stop string is held back to the end."""
    asked: dict[str, Any] = {"model": NAME, "prompt": PROMPT, "max_tokens": 8}
    text = client.completions.create(**asked).choices[0].text
    found = client.completions.create(**asked, stop=text[-3:] + "never", logprobs=1).choices[0]
    assert found.text == text
    assert found.logprobs is not None
    assert len(found.logprobs.tokens or []) == 8


def test_biases(client: openai.OpenAI, stories: LLM) -> None:
    plain = alone(stories, 6)
    banned, wanted = plain[0].token, stories.tokenizer.encode("dog")[-1]
    found = client.completions.create(model=NAME, prompt=PROMPT, max_tokens=6, logit_bias={str(banned): -100})
    expected = alone(stories, 6, logit_bias={banned: -100.0})
    assert found.choices[0].text == "".join(piece.text for piece in expected)
    assert banned not in [piece.token for piece in expected]
    forced = client.completions.create(model=NAME, prompt=PROMPT, max_tokens=4, logit_bias={str(wanted): 100})
    assert forced.choices[0].text == stories.tokenizer.token_bytes(wanted).decode() * 4


def test_tokens_that_are_impossible_and_no_alternatives() -> None:
    """JSON has no infinity."""
    letter, other, nothing = 3 + ord("x"), 3 + ord("y"), -float("inf")
    piece = Piece(letter, "x", nothing, ((letter, nothing), (other, -1e9)))
    entry = logprob_entry(ByteTokenizer(), piece, 2)
    assert (entry["logprob"], [each["logprob"] for each in entry["top_logprobs"]]) == (-9999, [-9999, -9999])
    for count, top in ((1, {"x": -9999}), (0, None)):
        lists = logprob_lists(ByteTokenizer(), [piece], count)
        assert (lists["top_logprobs"], lists["token_logprobs"]) == ([top], [-9999])


def test_of_equal_texts_the_most_likely_token_is_reported() -> None:
    """Single bytes of a character all read as U+FFFD."""
    high, low, letter = 3 + 0xE6, 3 + 0xE7, 3 + ord("x")
    top = ((high, -0.5), (letter, -1.0), (low, -2.0))
    lists = logprob_lists(ByteTokenizer(), [Piece(high, "", -0.5, top)], 3)
    assert lists["top_logprobs"] == [{"\ufffd": -0.5, "x": -1.0}]
