"""Bodies that would take seconds or gigabytes to check, and what no body may leave behind."""

from __future__ import annotations

import gc
import json
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, get_type_hints

import pytest
from http_fixtures import CHAT, NAME, PATIENCE, TEXT, Running, error, post_raw, running, until
from scripted import Script, ScriptedEngine, play

from pteron import OutOfMemory
from pteron.llm import LLM
from pteron.serving.answer.generation import Generation
from pteron.serving.api.schema import LOOKUPS_MAX
from pteron.serving.http import Limits
from pteron.serving.http.errors import release
from pteron.serving.http.json_body import DEPTH_MAX, PARTS_MAX, VALUES_MAX, parse_json

MANY = 300_000
JSON = {"Content-Type": "application/json"}
RESPONSE: dict[str, Any] = {"model": NAME, "input": "a"}
MESSAGE: dict[str, Any] = CHAT | {"max_tokens": 1}


@contextmanager
def quick(server: Running) -> Iterator[None]:
    """Another request waits for less than half a second. Client and server run in this process: its processor
    time is the wait that the server causes, however busy the machine is."""
    waits, is_asking, is_over = list[float](), threading.Event(), threading.Event()

    def ask() -> None:
        while not is_over.wait(0.01):
            before = time.process_time()
            assert server.http.get("/health").status_code == 200
            waits.append(time.process_time() - before)
            is_asking.set()

    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(ask)
        assert is_asking.wait(PATIENCE)
        before = time.process_time()
        try:
            yield
        finally:
            is_over.set()
        assert time.process_time() - before < 1.5
        asking.result()
    assert max(waits) < 0.5


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("/v1/completions", TEXT | {"stop": [1] * MANY}),
        ("/v1/completions", TEXT | {"stop_token_ids": ["a"] * MANY}),
        ("/v1/completions", TEXT | {"prompt": [1] * MANY + ["a"]}),
        ("/v1/completions", TEXT | {"prompt": [[]] * MANY}),
        ("/v1/completions", TEXT | {"logit_bias": dict.fromkeys(map(str, range(PARTS_MAX - 10)), "x")}),
        ("/v1/chat/completions", CHAT | {"modalities": [1] * MANY}),
        ("/v1/chat/completions", CHAT | {"messages": [{"role": "user", "content": [1] * MANY}]}),
        ("/v1/responses", RESPONSE | {"input": [1] * MANY}),
        ("/v1/responses", RESPONSE | {"include": [1] * MANY}),
        ("/v1/responses", RESPONSE | {"input": [{"role": "king", "content": "a"}] * 9_000}),
        ("/v1/messages", MESSAGE | {"stop_sequences": [1] * MANY}),
        ("/v1/messages", MESSAGE | {"system": [1] * MANY}),
        ("/api/generate", {"model": NAME, "prompt": "a", "images": [1] * MANY}),
        ("/api/embed", {"model": NAME, "input": [1] * MANY}),
        ("/v1/embeddings", {"model": NAME, "input": ["a"] * MANY + [1]}),
        ("/v1/rerank", {"model": NAME, "query": "a", "documents": [1] * MANY}),
        ("/v1/rerank", {"model": NAME, "query": "a", "documents": [{"text": ""}] * 40_000}),
        ("/api/chat", CHAT | {"messages": [{"role": "user", "images": ["a"] * MANY}]}),
        ("/v1/completions", TEXT | {"structured_outputs": {"json": {"enum": [0.5] * MANY}}}),
        ("/detokenize", {"model": NAME, "tokens": ["a"] * MANY}),
        ("/detokenize", {"model": NAME, "tokens": [1] * 1_100_000}),
    ],
    ids=lambda value: value if isinstance(value, str) else list(value)[-1],
)
def test_long_lists(scripted: Running, route: str, body: dict[str, Any]) -> None:
    content = json.dumps(body).encode()
    with quick(scripted):
        response = scripted.http.post(route, content=content, headers=JSON)
    assert response.status_code == 400
    assert len(response.content) < 500


def test_lists_are_checked_up_to_the_first_wrong_item(scripted: Running) -> None:
    def lists(schema: Any) -> Iterator[dict[str, Any]]:
        if isinstance(schema, dict) and schema.get("type") == "list":
            yield schema
        parts = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
        for part in parts:
            yield from lists(part)

    bodies = [get_type_hints(route.endpoint).get("body") for route in routes(scripted)]
    kinds = [kind.__pydantic_core_schema__ for kind in bodies if kind is not None]
    found = [schema for kind in kinds for schema in lists(kind)]
    assert len(found) > 40
    assert all(schema["fail_fast"] for schema in found)


def routes(server: Running) -> list[Any]:
    """The routes of all APIs, also where routers are kept as they are added."""
    found, left = [], list(server.app.routes)
    while left:
        route = left.pop()
        left += getattr(getattr(route, "original_router", None), "routes", [])
        found += [route] if hasattr(route, "endpoint") else []
    return found


def test_the_structure_of_a_body_is_limited(scripted: Running) -> None:
    def post(metadata: str) -> Any:
        content = f'{{"model": "{NAME}", "input": "a", "metadata": {metadata}}}'
        with quick(scripted):
            return scripted.http.post("/v1/responses", content=content, headers=JSON)

    for part, count in (
        ("[]", PARTS_MAX),
        ("{}", PARTS_MAX),
        ('{"a": 1}', PARTS_MAX // 2),
        ("[]", 1_300_000),
    ):
        assert "lists, objects and fields" in error(post(f"[{','.join([part] * count)}]"), 400)["message"]
    assert "values" in error(post(f"[{'1,' * VALUES_MAX}1]"), 400)["message"]
    assert parse_json(f'["{"," * VALUES_MAX}"]'.encode()) == ["," * VALUES_MAX]
    assert "in each other" in error(post("[" * DEPTH_MAX + "]" * DEPTH_MAX), 400)["message"]
    nested = json.loads(post("[" * (DEPTH_MAX - 1) + "]" * (DEPTH_MAX - 1)).text)["metadata"]
    assert str(nested) == "[" * (DEPTH_MAX - 1) + "]" * (DEPTH_MAX - 1)
    text = rf'["\"{"[{:" * PARTS_MAX}\\"]'  # what is in a string is no structure
    assert parse_json(text.encode()) == json.loads(text)
    assert "bytes" in error(post(f"[{'0.5,' * 100_000}1]"), 400)["message"]  # each event would repeat them


def test_many_unknown_names(scripted: Running) -> None:
    """Anagrams of a known name take the longest to be found different."""
    letters, drawn = list("repetition_penalty"), random.Random(1)
    names = {"".join(drawn.sample(letters, len(letters))) for _ in range(30_000)}
    with quick(scripted):
        assert scripted.http.post("/v1/completions", json=TEXT | dict.fromkeys(names, 0)).status_code == 200
    turns = [{"role": "user", "content": "a", "rolse": 0} | dict.fromkeys(("elro", "lore"), 0)] * 9_000
    with quick(scripted):
        response = scripted.http.post("/v1/messages", json=MESSAGE | {"messages": turns})
    assert "did you mean role?" in response.json()["error"]["message"]
    wrong = dict.fromkeys(map(str, range(LOOKUPS_MAX - 1)), 0) | {"temprature": 1}
    found = error(scripted.http.post("/v1/completions", json=TEXT | wrong), 400)
    assert found["message"] == "temprature is unknown; did you mean temperature?"


def test_errors_leave_no_garbage(scripted: Running) -> None:
    """A cycle through an exception would keep the request's body: full collections are rare."""
    wrong: list[tuple[str, Any]] = [
        ("/v1/completions", TEXT | {"stop": [1] * 9}),
        ("/v1/completions", TEXT | {"echo": True}),
        ("/v1/completions", TEXT | {"stream_options": {}}),
        ("/v1/completions", TEXT | {"max_token": 1}),
        ("/v1/completions", TEXT | {"prompt": "word " * 300}),
        ("/v1/completions", TEXT | {"structured_outputs": {"grammar": "((("}}),
        ("/v1/completions", [1]),
        ("/v1/messages", MESSAGE | {"tools": [{"type": "web_search"}]}),
        ("/api/chat", {"model": NAME, "messages": [{"role": "king"}]}),
        ("/detokenize", {"model": NAME, "tokens": ["a"]}),
        ("/v1/nothing", {}),
    ]
    failing = Script(["Once"], error=OutOfMemory("no room"))
    gc.collect()
    gc.disable()
    try:
        before = exceptions()
        statuses = [scripted.http.post(route, json=body).status_code for route, body in wrong]
        statuses.append(scripted.http.post("/v1/completions", content=b'{"a": NaN', headers=JSON).status_code)
        play(scripted, failing)
        for change in ({}, {"n": 2}, {"stream": True}):
            statuses.append(scripted.http.post("/v1/completions", json=TEXT | change).status_code)
        assert statuses == [400] * 10 + [404, 400, 503, 503, 200]
        until(lambda: exceptions() <= before)
    finally:
        gc.enable()


def test_answers_leave_no_garbage(scripted: Running) -> None:
    """A writer and its generation refer to each other while an answer runs: so would the request's body."""
    play(scripted, Script(["Once"]))
    routes: list[tuple[str, dict[str, Any]]] = [
        ("/v1/completions", TEXT),
        ("/v1/chat/completions", CHAT),
        ("/v1/responses", RESPONSE),
        ("/v1/messages", MESSAGE),
        ("/api/chat", CHAT),
    ]
    gc.collect()
    gc.disable()
    try:
        for stream in (False, True):
            statuses = [
                scripted.http.post(route, json=body | {"stream": stream}).status_code
                for route, body in routes
            ]
            assert statuses == [200] * len(routes)
        until(lambda: not generations())
    finally:
        gc.enable()


def test_a_client_that_does_not_read_leaves_no_garbage(stories: LLM) -> None:
    engine = ScriptedEngine(stories, lambda _: Script(["x" * 1000] * 20_000))
    body = json.dumps(TEXT | {"stream": True}).encode()
    gc.collect()
    gc.disable()
    try:
        with running(engine, limits=Limits(read_seconds=0.3)) as server, post_raw(server, body):
            until(lambda: any(line.get("abandoned") for line in server.log()))
            until(lambda: not generations())
    finally:
        gc.enable()


def test_errors_that_come_from_each_other() -> None:
    """An error with a cause also has the error that it was raised in; they may be a cycle."""

    def raised(message: str) -> Exception:
        try:
            raise ValueError(message)
        except ValueError as error:
            return error

    error, cause, context = map(raised, ("error", "cause", "context"))
    error.__cause__, error.__context__, cause.__context__ = cause, context, error
    release(error)
    assert [each.__traceback__ for each in (error, cause, context)] == [None] * 3


def generations() -> list[Any]:
    return [each for each in gc.get_objects() if type(each) is Generation]


def exceptions() -> set[int]:
    return {id(each) for each in gc.get_objects() if issubclass(type(each), BaseException)}
