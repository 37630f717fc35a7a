"""Many clients at once, each answered as if it were alone; and a client library beside the official one."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from http_fixtures import NAME, PATIENCE, Running, openai_client

CLIENTS = 16
BEGINNINGS = (
    "Once upon a time",
    "The little dog",
    "Lily and her mom",
    "One day, a boy",
    "A cat",
    "In the park",
)
PROMPTS = [f"{BEGINNINGS[number % 6]} {'very ' * (number // 6)}" for number in range(CLIENTS)]
LENGTHS = [9 + number % 7 for number in range(CLIENTS)]


async def ask(client: openai.AsyncOpenAI, prompt: str, count: int, is_streamed: bool) -> str:
    asked: dict[str, Any] = {"model": NAME, "prompt": prompt, "max_tokens": count, "temperature": 0}
    if not is_streamed:
        text: str = (await client.completions.create(**asked)).choices[0].text
        return text
    return "".join(
        [chunk.choices[0].text async for chunk in await client.completions.create(**asked, stream=True)]
    )


@pytest.mark.long
def test_many_clients_get_what_each_gets_alone(server: Running) -> None:
    async def ask_all() -> None:
        settings: dict[str, Any] = {"base_url": f"{server.address}/v1", "api_key": "x", "max_retries": 0}
        async with openai.AsyncOpenAI(**settings, timeout=PATIENCE * 5) as client:
            asked = list(zip(PROMPTS, LENGTHS, strict=True))
            alone = [await ask(client, *each, False) for each in asked]
            assert len(set(alone)) > CLIENTS // 2
            many = (ask(client, *each, bool(number % 2)) for number, each in enumerate(asked))
            assert await asyncio.gather(*many) == alone

    asyncio.run(ask_all())
    server.settle()


def test_a_conversation_is_not_read_again(server: Running) -> None:
    client = openai_client(server)
    messages: list[Any] = [{"role": "user", "content": "Tell me of a bird that lives in a tall tree."}]
    first = client.chat.completions.create(model=NAME, messages=messages, max_tokens=10)
    messages.append({"role": "assistant", "content": first.choices[0].message.content})
    messages.append({"role": "user", "content": "And then?"})
    second = client.chat.completions.create(model=NAME, messages=messages, max_tokens=5)
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    cached = second.usage.prompt_tokens_details.cached_tokens
    assert cached is not None
    assert cached >= first.usage.prompt_tokens - 1


def test_cached_tokens_of_several_answers(server: Running) -> None:
    """Each prompt counts once, however many answers it has."""
    create = openai_client(server).completions.create
    prompt = "A bird and a fish went to the market to buy a red hat."
    for count, prompts in ((1, [prompt]), (3, [prompt]), (2, [prompt, prompt])):
        usage = create(model=NAME, prompt=prompts, max_tokens=1, n=count).usage
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        if count > 1:
            assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens - len(prompts)


@pytest.mark.long
class TestLiteLLM:
    """Another library, which reads streams in its own way."""

    @pytest.fixture
    def complete(self, server: Running, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # no download
        litellm = pytest.importorskip("litellm", reason="needs the extra `dev`")
        litellm.telemetry = False

        def complete(**asked: Any) -> Any:
            return litellm.completion(
                model=f"hosted_vllm/{NAME}",
                api_base=f"{server.address}/v1",
                api_key="x",
                messages=[{"role": "user", "content": "Tell me about a cat."}],
                num_retries=0,
                **asked,
            )

        complete.errors = litellm  # type: ignore[attr-defined]
        return complete

    def test_streamed_equals_unstreamed(self, complete: Any) -> None:
        whole = complete(max_tokens=21)
        chunks = list(complete(max_tokens=21, stream=True, stream_options={"include_usage": True}))
        said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert said == whole.choices[0].message.content
        assert whole.choices[0].finish_reason == "length"
        assert whole.usage.completion_tokens == 21
        assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
        assert whole.usage.total_tokens == whole.usage.prompt_tokens + 21

    def test_errors(self, complete: Any) -> None:
        with pytest.raises(complete.errors.BadRequestError, match="temperature"):
            complete(temperature=9)
