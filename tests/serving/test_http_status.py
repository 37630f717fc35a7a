"""The log, the metrics and the health of a server."""

from __future__ import annotations

import asyncio
import re
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from engine_fixtures import A, B, asked, at_once
from http_fixtures import NAME, PATIENCE, Running, running, until
from prometheus_client.parser import text_string_to_metric_families
from scripted import Script, ScriptedEngine, play

from pteron.llm import LLM
from pteron.serving import Engine, Load
from pteron.serving.http import create_app
from pteron.serving.http.metrics import Metrics
from pteron.serving.http.request_log import RequestRecord
from pteron.serving.http.server import Server, configure
from pteron.serving.http.server_state import ServerState

SECRET = "a private prompt"
ASKED: dict[str, Any] = {"model": NAME, "prompt": SECRET, "max_tokens": 4}


def samples(server: Running) -> dict[str, float]:
    """Metrics by name and labels."""
    found = {}
    for family in text_string_to_metric_families(server.http.get("/metrics").text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


def test_a_request_is_one_line(server: Running) -> None:
    response = server.http.post("/v1/completions", json=ASKED)
    usage = response.json()["usage"]
    line = server.logged(response)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    assert (line["method"], line["route"], line["status"]) == ("POST", "/v1/completions", 200)
    assert (line["model"], line["stream"], line["choices"]) == (NAME, False, 1)
    assert line["prompt_tokens"] == usage["prompt_tokens"]
    assert line["new_tokens"] == usage["completion_tokens"] == 4
    assert line["finish_reasons"] == ["length"]
    assert 0 < line["first_token_seconds"] <= line["seconds"]


def test_batching_is_logged_and_measured(tiny_llm: LLM) -> None:
    """In one line of the log and one metric."""
    with Engine(tiny_llm) as engine, running(engine) as server:
        assert samples(server)["pteron_slots{}"] == 0
        for answer in at_once(engine, [asked(A), asked(B)]):
            answer.pieces()
        assert samples(server)["pteron_slots{}"] == engine.slots > 1
        (line,) = [line for line in server.log() if line["event"] == "engine"]
        assert (line["model"], line["message"]) == (NAME, f"up to {engine.slots} sequences step as one batch")
    with Engine(tiny_llm, batched=False) as engine, running(engine) as server:
        (line,) = [line for line in server.log() if line["event"] == "engine"]
        assert line["message"] == "each sequence steps alone: batched=False"


def test_prompts_are_logged_only_on_request(server: Running, stories: LLM) -> None:
    server.logged(server.http.post("/v1/completions", json=ASKED))
    assert SECRET not in str(server.log())
    with running(ScriptedEngine(stories, lambda _: Script(["Once", " upon"])), prompts=True) as other:
        line = other.logged(other.http.post("/v1/completions", json=ASKED))
        assert (line["prompt"], line["answer"]) == (SECRET, ["Once upon"])
        chat = {"model": NAME, "messages": [{"role": "user", "content": SECRET}], "stream": True}
        line = other.logged(other.http.post("/v1/chat/completions", json=chat))
        assert (line["prompt"], line["answer"]) == (chat["messages"], ["Once upon"])


def test_failed_requests_are_logged(server: Running) -> None:
    line = server.logged(server.http.post("/v1/completions", json=ASKED | {"temperature": 9}))
    assert (line["status"], line["route"], line["error"]) == (400, "/v1/completions", "invalid_value")
    line = server.logged(server.http.get("/no/such/place"))
    assert (line["status"], line["route"]) == (404, "other")  # unknown paths are no labels


def test_metrics_count(server: Running) -> None:
    server.settle()
    before = samples(server)
    for body in (ASKED, ASKED | {"stream": True}, ASKED | {"n": 2}, ASKED | {"top_p": 5}):
        server.http.post("/v1/completions", json=body)
    server.http.get("/no/such/place")
    until(lambda: samples(server)["pteron_http_requests_total{route=other,status=404}"] >= 1)
    after = samples(server)

    def grown(name: str) -> float:
        return after[name] - before.get(name, 0.0)

    assert grown("pteron_http_requests_total{route=/v1/completions,status=200}") == 3
    assert grown("pteron_http_requests_total{route=/v1/completions,status=400}") == 1
    assert grown("pteron_generated_tokens_total{}") == 16
    assert grown("pteron_engine_requests_total{}") == 4
    assert grown("pteron_time_to_first_token_seconds_count{}") == 3  # of requests
    assert grown("pteron_time_between_tokens_seconds_count{}") == 12  # of each answer's tokens
    assert grown("pteron_http_request_seconds_count{route=/v1/completions}") == 4
    assert after["pteron_requests_running{}"] == after["pteron_requests_waiting{}"] == 0
    assert after["pteron_cache_bytes{}"] > 0
    assert after["pteron_speculation_proposed_tokens_total{}"] == 0


def test_every_number_of_an_engine_has_its_metric() -> None:
    load = Load(1, 2, 3, 4, 5, 6.5, 7, 8, 9, 10, 11, 12, 13, 14)
    engine: Any = SimpleNamespace(load=load)
    metrics = Metrics(lambda: {"": engine})
    gone, whole = RequestRecord("1", "GET", route="/a"), RequestRecord("2", "GET", route="/a")
    gone.status, gone.is_abandoned, whole.status = 499, True, 200
    for record in (gone, whole):
        metrics.request(record)
    found = {
        sample.name: sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }
    assert found["pteron_http_abandoned_total"] == 1
    assert found["pteron_http_request_seconds_count"] == 2
    names = {field.name: getattr(load, field.name) for field in fields(Load)}
    metric = {"running": "requests_running", "waiting": "requests_waiting"}
    metric |= {"requests": "engine_requests_total", "prompt_tokens": "prompt_tokens_total"}
    metric |= {"reused_tokens": "prompt_tokens_reused_total", "new_tokens": "generated_tokens_total"}
    metric |= {f"{kind}_tokens": f"speculation_{kind}_tokens_total" for kind in ("proposed", "accepted")}
    metric |= {kind: f"requests_{kind}_total" for kind in ("cancelled", "failed")}
    for name, value in names.items():
        assert found[f"pteron_{metric.get(name, name)}"] == value, name


def test_several_answers_are_timed_as_one_request(stories: LLM) -> None:
    """To the first token of any; one that was cancelled has that as its reason."""
    script = Script(["Once"], hangs=True)
    with running(ScriptedEngine(stories, lambda _: script)) as server:
        body = ASKED | {"n": 2, "stream": True}
        with server.http.stream("POST", "/v1/completions", json=body) as response:
            number = response.headers["x-request-id"]
            for _, _ in zip(range(2), (line for line in response.iter_lines() if line), strict=False):
                pass
        until(lambda: any(line.get("id") == number for line in server.log()))
        (line,) = [line for line in server.log() if line.get("id") == number]
        assert (line["choices"], line["finish_reasons"]) == (2, ["cancelled"] * 2)
        assert samples(server)["pteron_time_to_first_token_seconds_count{}"] == 1
        assert samples(server)["pteron_http_abandoned_total{}"] == 1


def test_names_and_aliases(stories: LLM) -> None:
    engine = ScriptedEngine(stories, lambda _: Script(["Once"]))
    with running(engine, aliases=["gpt-4o", "team/model"]) as server:
        listed = [model["id"] for model in server.http.get("/v1/models").json()["data"]]
        assert listed == [NAME, "gpt-4o", "team/model"]
        assert server.http.get("/v1/models/team/model").json()["id"] == "team/model"
        found = server.http.post("/v1/completions", json=ASKED | {"model": "gpt-4o"}).json()
        assert found["model"] == NAME
        refused = server.http.post("/v1/completions", json=ASKED | {"model": "x"}).json()["error"]
        known = f"'{NAME}', 'gpt-4o', 'team/model'"
        assert refused["message"] == f"there is no model 'x'; this server has {known}"


def test_health_and_readiness(scripted: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a full queue, during shutdown, and of an engine that has ended."""

    def status() -> list[tuple[int, str]]:
        responses = [scripted.http.get(path) for path in ("/health", "/ready")]
        assert [scripted.http.head(response.url.path).status_code for response in responses] == [
            response.status_code for response in responses
        ]
        return [(response.status_code, response.json()["status"]) for response in responses]

    assert status() == [(200, "ok"), (200, "ready")]
    engine = play(scripted, Script(["Once"]))
    monkeypatch.setattr(engine, "is_full", True)
    assert status() == [(200, "ok"), (503, "full")]
    monkeypatch.setattr(scripted.app.state.server, "is_draining", True)
    assert status() == [(200, "ok"), (503, "draining")]  # which does not pass, as a full queue does
    monkeypatch.setattr(engine, "is_full", False)
    assert scripted.http.get("/").status_code == scripted.http.get("/metrics").status_code == 503
    rejected = scripted.http.post("/v1/completions", json=ASKED)
    assert (rejected.status_code, rejected.json()["error"]["code"]) == (503, "shutting_down")
    monkeypatch.setattr(engine, "is_alive", False)
    assert status() == [(503, "lost"), (503, "lost")]
    assert scripted.logged(scripted.http.get("/health"))["status"] == 503  # only good health is not logged


def test_a_drain_waits_for_admitted_requests_only(stories: LLM) -> None:
    """Not for new ones, which get a 503 for as long as they come."""
    app = create_app(ScriptedEngine(stories, lambda _: Script(["Once"], hangs=True)), name=NAME, page=False)
    state: ServerState = app.state.server

    async def run() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            admitted = asyncio.create_task(client.post("/v1/completions", json=ASKED))
            while not state.answers:
                await asyncio.sleep(0.01)
            state.is_draining = True
            server = Server(configure(app), state, lambda address: None, PATIENCE)
            refused = asyncio.create_task(asyncio.sleep(PATIENCE))  # one after the other
            server.server_state.tasks.add(refused)
            draining = asyncio.create_task(server._drain())
            assert (await client.post("/v1/completions", json=ASKED)).status_code == 503
            assert (await client.get("/ready")).status_code == 503
            await asyncio.sleep(0.2)
            assert not draining.done()
            state.cancel()
            assert (await admitted).status_code == 503
            await asyncio.wait_for(draining, PATIENCE / 6)
            refused.cancel()

    asyncio.run(run())
