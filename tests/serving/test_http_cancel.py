"""Clients that leave, do not read, or are too many: each frees what it had, and harms no other."""

from __future__ import annotations

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from types import SimpleNamespace
from typing import Any

import httpx
import openai
import pytest
from http_fixtures import NAME, Running, error, openai_client, post_raw, running, until
from scripted import Script, ScriptedEngine, ScriptedModel

from pteron.llm import LLM
from pteron.serving import Engine
from pteron.serving.http import Limits, Logs, create_app

# Long enough that it does not finish during a test.
LONG: dict[str, Any] = {"model": NAME, "prompt": "Once upon a time", "max_tokens": 240, "temperature": 1.0}
LONG["logit_bias"] = {"1": -100, "2": -100}  # the tokens that end a story


def gone_lines(server: Running) -> list[dict[str, Any]]:
    return [line for line in server.log() if line.get("abandoned")]


def test_a_client_that_leaves_a_stream_frees_its_sequence(server: Running) -> None:
    server.settle()
    before, known = server.engine.load, len(gone_lines(server))
    client = openai_client(server)
    stream = client.completions.create(**LONG, stream=True, seed=1)
    next(iter(stream))
    assert server.engine.load.running == 1
    stream.close()
    server.settle()
    after = server.engine.load
    assert after.cancelled == before.cancelled + 1
    assert after.new_tokens - before.new_tokens < 240  # it did not go on to its end
    until(lambda: len(gone_lines(server)) == known + 1)
    line = gone_lines(server)[-1]
    assert (line["status"], line["finish_reasons"]) == (499, ["cancelled"])


@pytest.mark.parametrize("choices", [1, 3])
def test_a_client_that_leaves_before_the_answer_frees_its_sequences(server: Running, choices: int) -> None:
    server.settle()
    cancelled = server.engine.load.cancelled
    with post_raw(server, json.dumps(LONG | {"n": choices}).encode()):
        until(lambda: server.engine.load.running == choices)
    server.settle()
    assert server.engine.load.cancelled == cancelled + choices


def test_a_client_that_does_not_read(stories: LLM) -> None:
    """What it does not read stays in the server's memory until the time limit."""
    engine = ScriptedEngine(stories, lambda _: Script(["x" * 1000] * 20_000))
    body = json.dumps({"model": NAME, "prompt": "Hi", "stream": True}).encode()
    with running(engine, limits=Limits(read_seconds=0.3)) as server, post_raw(server, body):
        until(lambda: bool(engine.answers))
        assert server.http.get("/health").status_code == 200  # other requests are still served
        until(lambda: engine.answers[0].is_cancelled)
        until(lambda: bool(gone_lines(server)))


def test_a_server_that_raises_once_the_client_has_left(stories: LLM) -> None:
    """uvicorn says nothing when it sends to a client that has left; ASGI lets servers raise OSError."""
    engine = ScriptedEngine(stories, lambda _: Script(["x"] * 3, hangs=True))
    log, body = StringIO(), json.dumps({"model": NAME, "prompt": "Hi", "stream": True}).encode()
    given = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        return given.pop() if given else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            raise ConnectionResetError

    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "query_string": b"", "headers": []}
    asyncio.run(create_app(engine, name=NAME, logs=Logs(log), page=False)(scope, receive, send))
    *others, line = map(json.loads, log.getvalue().splitlines())
    assert (line["status"], line["abandoned"], "error" in line) == (499, True, False)
    assert not [other for other in others if other["event"] == "failure"]
    assert engine.answers[0].is_cancelled


def test_too_many_requests_get_retry_after(stories: LLM) -> None:
    with Engine(stories, running=1, waiting=2) as engine, running(engine) as server:
        client = openai_client(server)
        running_one = client.completions.create(**LONG, stream=True, seed=1)
        next(iter(running_one))
        waiting_ones = [client.completions.create(**LONG, stream=True, seed=seed) for seed in (2, 3)]
        response = server.http.post("/v1/completions", json=LONG)
        assert error(response, 429)["code"] == "rate_limit_exceeded"
        assert int(response.headers["retry-after"]) >= 1
        with pytest.raises(openai.RateLimitError):
            client.completions.create(**LONG)
        assert server.http.get("/health").json() == {"status": "ok", "running": 1, "waiting": 2}
        assert server.http.get("/ready").json()["status"] == "full"
        running_one.close()
        for waiting_one in waiting_ones:
            assert next(iter(waiting_one)).choices  # its turn has come
            waiting_one.close()
        server.settle()


def test_a_client_that_retries_is_served(stories: LLM) -> None:
    """The official client waits for Retry-After."""
    with Engine(stories, running=1, waiting=1) as engine, running(engine) as server:
        client = openai_client(server, max_retries=9)

        def ask(_: int) -> str:
            return client.completions.create(model=NAME, prompt="The cat", max_tokens=6).choices[0].text

        with ThreadPoolExecutor(3) as threads:
            assert len(set(threads.map(ask, range(3)))) == 1


def test_a_time_limit_ends_an_answer(stories_engine: Engine) -> None:
    with running(stories_engine, limits=Limits(seconds=0.3)) as server:
        response = server.http.post("/v1/completions", json=LONG | {"seed": 3})
        if response.status_code == 200:
            found = response.json()
            assert found["choices"][0]["finish_reason"] in ("length", "stop")
            assert found["usage"]["completion_tokens"] < 240
        else:  # a busy machine generated no token in time
            assert error(response, 503)["code"] == "timeout"


class SlowTokenizer:
    """Takes a while for each text, and counts them."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.encoded: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def encode(self, text: str, **options: Any) -> list[int]:
        self.encoded.append(len(text))
        time.sleep(0.05)
        return [1, 2, 3]


@pytest.mark.parametrize("route", ["/v1/completions", "/v1/chat/completions", "/tokenize", "/api/generate"])
def test_a_client_that_leaves_ends_the_encoding_of_its_prompt(stories: LLM, route: str) -> None:
    model = ScriptedModel.like(stories, "{{ messages }}")
    model.tokenizer = tokenizer = SlowTokenizer(stories.tokenizer)
    model.model = SimpleNamespace(context=1 << 20, vocabulary=32000, adapters=(), method=stories.model.method)
    text = "word " * 500_000  # 153 slices
    model.prompt = text
    bodies: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    }
    body = {"model": NAME, **bodies.get(route, {"prompt": text})}
    with running(ScriptedEngine(model, lambda _: Script(["x"]))) as server:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.address}{route}", json=body, timeout=httpx.Timeout(60, read=0.5))
        until(lambda: len(gone_lines(server)) == 1)
        count = len(tokenizer.encoded)
        assert 1 < count < 100
        time.sleep(0.2)
        assert len(tokenizer.encoded) == count
        assert gone_lines(server)[0]["status"] == 499
