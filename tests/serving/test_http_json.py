"""Answers constrained by a grammar: any JSON, a schema, a tool call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from http_fixtures import CHAT, NAME, Running, error, openai_client, running
from tool_fixtures import MESSAGES, TEMPLATES, TOOLS, together, with_template

from pteron.llm import LLM
from pteron.serving import Engine

pytest.importorskip("llguidance", reason="needs the extra `serve`")

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "kind": {"enum": ["cat", "dog"]},
        "age": {"type": "integer", "minimum": 0, "maximum": 30},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 2},
    },
    "required": ["name", "kind", "age", "tags"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "animal", "schema": SCHEMA, "strict": True}}


def fits(text: str) -> None:
    """Check a text against SCHEMA."""
    found = json.loads(text)
    assert found.keys() == {"name", "kind", "age", "tags"}
    assert isinstance(found["name"], str)
    assert len(found["name"]) <= 12
    assert found["kind"] in ("cat", "dog")
    assert type(found["age"]) is int
    assert 0 <= found["age"] <= 30
    assert len(found["tags"]) <= 2
    assert all(isinstance(tag, str) and len(tag) <= 5 for tag in found["tags"])


@pytest.mark.long(every=3)
@pytest.mark.parametrize(
    "drawing", [{}, {"temperature": 1.5, "seed": 1}, {"temperature": 1.5, "seed": 2}], ids=str
)
def test_a_schema(client: openai.OpenAI, drawing: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"model": NAME, "messages": MESSAGES, "max_tokens": 120}
    asked["response_format"] = FORMAT
    whole = client.chat.completions.create(**asked, **drawing).choices[0]
    assert whole.finish_reason == "stop"
    fits(whole.message.content or "")
    stream = client.chat.completions.create(**asked, **drawing, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == whole.message.content


def test_any_object(client: openai.OpenAI) -> None:
    found = client.chat.completions.create(
        model=NAME, messages=MESSAGES, max_tokens=60, response_format={"type": "json_object"}
    ).choices[0]
    assert (found.message.content or "").lstrip().startswith("{")
    if found.finish_reason == "stop":
        assert isinstance(json.loads(found.message.content or ""), dict)


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        ({"type": "nonsense"}, "invalid_json_schema"),
        ({"$ref": "https://evil.example/schema"}, "invalid_json_schema"),
        ({"type": "string", "pattern": "(("}, "invalid_json_schema"),
        ({"enum": ["x" * 1000] * 200}, "invalid_value"),  # too large
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_invalid_schema(server: Running, schema: dict[str, Any], code: str) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    found = error(server.http.post("/v1/chat/completions", json=CHAT | {"response_format": wanted}), 400)
    assert (found["param"], found["code"]) == ("response_format", code)


@TEMPLATES
def templated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = with_template(tmp_path_factory.mktemp("templated"), request.param)
    with LLM(folder) as llm, Engine(llm) as engine, running(engine) as server:
        yield server


@pytest.mark.long(every=3)  # each template and each choice once
@pytest.mark.parametrize(
    ("choice", "names"),
    [("required", {"weather", "now"}), ({"type": "function", "function": {"name": "weather"}}, {"weather"})],
    ids=["required", "named"],
)
def test_a_forced_tool_call(templated: Running, choice: Any, names: set[str]) -> None:
    client = openai_client(templated)
    tools: Any = json.loads(json.dumps(TOOLS))
    tools[0]["function"]["parameters"]["properties"]["city"]["maxLength"] = 8
    tools[0]["function"]["parameters"]["additionalProperties"] = False
    tools[1]["function"]["parameters"] = {"type": "object", "properties": {}, "additionalProperties": False}
    asked: dict[str, Any] = {"model": NAME, "messages": MESSAGES, "tools": tools, "max_tokens": 90}
    asked |= {"tool_choice": choice, "temperature": 1.0, "seed": 5, "parallel_tool_calls": False}
    whole = client.chat.completions.create(**asked).choices[0]
    assert whole.message.tool_calls is not None
    (call,) = whole.message.tool_calls
    assert call.function.name in names
    arguments = json.loads(call.function.arguments)
    assert arguments.keys() == ({"city"} if call.function.name == "weather" else set())
    assert (whole.finish_reason, whole.message.content) == ("tool_calls", None)
    deltas = [chunk.choices[0].delta for chunk in client.chat.completions.create(**asked, stream=True)]
    assert together(deltas) == ("", [(call.function.name, call.function.arguments)])


def test_text_is_free_where_tools_may_be_called(templated: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    create = openai_client(templated).chat.completions.create
    asked: dict[str, Any] = {"model": NAME, "messages": MESSAGES, "max_tokens": 30, "tools": TOOLS}
    found = create(**asked).choices[0].message
    monkeypatch.setattr("pteron.serving.prompt.chat.lazy_grammar", lambda *_, **__: None)
    assert found.content == create(**asked).choices[0].message.content
    assert not found.tool_calls
