"""Completions and chats by the official client: streamed or not, the model's own text."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from http_fixtures import NAME, Running, events

from pteron.llm import LLM, Sampling

PROMPT = "Once upon a time, there was a"
MESSAGES: Any = [{"role": "user", "content": "Tell me about a cat."}]
USAGE: Any = {"include_usage": True}


def alone(stories: LLM, prompt: str, count: int, sampling: Sampling | None = None, **settings: Any) -> str:
    """The model's own text."""
    pieces = stories.generate(prompt, max_new_tokens=count, sampling=sampling, **settings)
    return "".join(piece.text for piece in pieces)


def test_the_model_is_listed(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert (model.id, model.object, model.owned_by) == (NAME, "model", "pteron")
    assert client.models.retrieve(NAME) == model
    with pytest.raises(openai.NotFoundError) as refused:
        client.models.retrieve("gpt-none")
    assert refused.value.code == "model_not_found"


def test_a_completion_is_the_models_own_text(client: openai.OpenAI, stories: LLM) -> None:
    found = client.completions.create(model=NAME, prompt=PROMPT, max_tokens=23)
    assert found.choices[0].text == alone(stories, PROMPT, 23)
    assert found.choices[0].finish_reason == "length"
    assert found.usage is not None
    assert found.usage.prompt_tokens == len(stories.encode(PROMPT))
    assert found.usage.completion_tokens == 23
    assert found.usage.total_tokens == found.usage.prompt_tokens + 23


def test_the_default_length_of_a_completion(client: openai.OpenAI) -> None:
    found = client.completions.create(model=NAME, prompt=PROMPT)
    assert found.usage is not None
    assert found.usage.completion_tokens == 16


def test_tokens_are_a_prompt_too(client: openai.OpenAI, stories: LLM) -> None:
    found = client.completions.create(model=NAME, prompt=list(stories.encode(PROMPT)), max_tokens=7)
    assert found.choices[0].text == alone(stories, PROMPT, 7)


@pytest.mark.parametrize("drawing", [{}, {"temperature": 0.9, "top_p": 0.95, "seed": 5}])
def test_a_streamed_completion_equals_one_that_is_not(client: openai.OpenAI, drawing: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"model": NAME, "prompt": PROMPT, "max_tokens": 21, **drawing}
    whole = client.completions.create(**asked)
    chunks = list(client.completions.create(**asked, stream=True, stream_options=USAGE))
    *texts, last = chunks
    assert "".join(chunk.choices[0].text for chunk in texts) == whole.choices[0].text
    assert texts[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert all(chunk.choices[0].finish_reason is None for chunk in texts[:-1])
    assert last.choices == []
    assert last.usage is not None
    assert whole.usage is not None
    assert last.usage.total_tokens == whole.usage.total_tokens
    assert {chunk.id for chunk in chunks} == {last.id}
    assert len(texts) > 14  # in pieces, as they come


@pytest.mark.parametrize("drawing", [{}, {"temperature": 0.7, "seed": -3}])
def test_a_streamed_chat_equals_one_that_is_not(client: openai.OpenAI, drawing: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"model": NAME, "messages": MESSAGES, "max_completion_tokens": 15, **drawing}
    whole = client.chat.completions.create(**asked)
    *texts, last = client.chat.completions.create(**asked, stream=True, stream_options=USAGE)
    assert texts[0].choices[0].delta.role == "assistant"
    said = "".join(chunk.choices[0].delta.content or "" for chunk in texts)
    assert said == whole.choices[0].message.content
    assert texts[-1].choices[0].finish_reason == whole.choices[0].finish_reason == "length"
    assert last.usage.completion_tokens == whole.usage.completion_tokens == 15
    assert last.usage.prompt_tokens == whole.usage.prompt_tokens


def test_content_in_parts_is_one_text(client: openai.OpenAI) -> None:
    parts: Any = [{"type": "text", "text": "Tell me "}, {"type": "text", "text": "about a cat."}]
    asked: dict[str, Any] = {"model": NAME, "max_tokens": 9}
    divided = client.chat.completions.create(messages=[{"role": "user", "content": parts}], **asked)
    assert divided.choices == client.chat.completions.create(messages=MESSAGES, **asked).choices


def test_usage_is_streamed_only_on_request(server: Running) -> None:
    asked = {"model": NAME, "prompt": PROMPT, "max_tokens": 3, "stream": True}
    response = server.http.post("/v1/completions", json=asked)
    headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}  # nginx must not buffer it
    assert {name: response.headers[name] for name in headers} == headers
    chunks = events(response)
    assert all("usage" not in chunk for chunk in chunks)
    chunks = events(server.http.post("/v1/completions", json=asked | {"stream_options": USAGE}))
    assert [chunk["usage"] is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_stop_strings_end_an_answer(client: openai.OpenAI, stories: LLM, is_streamed: bool) -> None:
    text = alone(stories, PROMPT, 20)
    stop = text[11:17]  # across tokens
    expected = text[: text.index(stop)]
    asked: dict[str, Any] = {"model": NAME, "prompt": PROMPT, "max_tokens": 20, "stop": [stop, "never there"]}
    if is_streamed:
        chunks = list(client.completions.create(**asked, stream=True))
        said, reason = "".join(chunk.choices[0].text for chunk in chunks), chunks[-1].choices[0].finish_reason
    else:
        found = client.completions.create(**asked)
        said, reason = found.choices[0].text, found.choices[0].finish_reason
    assert (said, reason) == (expected, "stop")


def test_tokens_that_end_an_answer(client: openai.OpenAI, stories: LLM) -> None:
    """vLLM's fields: its benchmarks send ignore_eos."""

    def ended(token: int, **more: Any) -> tuple[str, str, int]:
        asked: dict[str, Any] = {"model": NAME, "prompt": PROMPT, "max_tokens": 5}
        found = client.completions.create(**asked, logit_bias={str(token): 100}, extra_body=more)
        assert found.usage
        return found.choices[0].finish_reason, found.choices[0].text, found.usage.completion_tokens

    end, other = stories.eos_ids[0], 421
    assert ended(end) == ("stop", "", 1)
    assert ended(end, ignore_eos=True) == ("length", "", 5)
    assert ended(other)[::2] == ("length", 5)
    assert ended(other, stop_token_ids=[7, other]) == ("stop", "", 1)
    assert ended(end, stop_token_ids=[7]) == ("stop", "", 1)


def test_equal_seeds_draw_equal_texts(client: openai.OpenAI) -> None:
    def drawn(seed: int | None) -> str:
        found = client.completions.create(model=NAME, prompt=PROMPT, max_tokens=9, temperature=1.2, seed=seed)
        return found.choices[0].text

    assert drawn(11) == drawn(11)
    assert len({drawn(11), drawn(12), drawn(2**40 + 13)}) == 3
    assert drawn(None) != drawn(None)


def test_penalties_and_parameters_beyond_openais(client: openai.OpenAI, stories: LLM) -> None:
    penalties: dict[str, Any] = {"presence_penalty": 1.5, "frequency_penalty": 0.7}
    drawing: dict[str, Any] = {"temperature": 1.0, "seed": 4}
    beyond: dict[str, Any] = {"top_k": 5, "min_p": 0.02, "repetition_penalty": 1.3}
    for theirs, ours in ((penalties, {}), (drawing, beyond)):
        found = client.completions.create(model=NAME, prompt=PROMPT, max_tokens=24, **theirs, extra_body=ours)
        assert found.choices[0].text == alone(stories, PROMPT, 24, Sampling(**theirs, **ours))
        assert found.choices[0].text != alone(stories, PROMPT, 24)


def test_several_answers_to_one_prompt(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": NAME, "prompt": PROMPT, "max_tokens": 12, "temperature": 1.5, "seed": 8}
    found = client.completions.create(**asked, n=3)
    texts = [choice.text for choice in found.choices]
    assert [choice.index for choice in found.choices] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert texts[0] == client.completions.create(**asked).choices[0].text
    assert found.usage is not None
    assert found.usage.completion_tokens == 36
    assert found.usage.prompt_tokens == client.completions.create(**asked).usage.prompt_tokens
    streamed = ["", "", ""]
    for chunk in client.completions.create(**asked, n=3, stream=True):
        streamed[chunk.choices[0].index] += chunk.choices[0].text
    assert streamed == texts


def test_several_prompts_in_one_request(client: openai.OpenAI, stories: LLM) -> None:
    prompts = [PROMPT, "The little dog", "Lily and her mom"]
    found = client.completions.create(model=NAME, prompt=prompts, max_tokens=8)
    assert [choice.text for choice in found.choices] == [alone(stories, prompt, 8) for prompt in prompts]
    assert found.usage is not None
    assert found.usage.prompt_tokens == sum(len(stories.encode(prompt)) for prompt in prompts)


def test_an_answer_ends_where_the_context_does(client: openai.OpenAI, stories: LLM) -> None:
    ids = (list(stories.encode(PROMPT)) * 40)[: stories.model.context - 5]
    found = client.completions.create(model=NAME, prompt=ids, max_tokens=50, logit_bias={"2": -100})
    assert found.choices[0].finish_reason == "length"
    assert found.usage is not None
    assert found.usage.completion_tokens == 6
