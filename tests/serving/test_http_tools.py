"""Tools: calls parsed from a model's text in pieces, offered and forced in the template's format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import openai
import pytest
from byte_tokenizer import ByteTokenizer
from engine_fixtures import MODEL
from http_fixtures import NAME, Running, error, openai_client, running
from hypothesis import given
from hypothesis import strategies as st
from scripted import Script, ScriptedEngine, ScriptedModel, play
from tool_fixtures import HERMES, LLAMA, MESSAGES, TOOLS, WEATHER, together

from pteron import Device
from pteron.llm import LLM
from pteron.serving.answer.format import CallFormat, answer_format
from pteron.serving.answer.parts import CallArguments, CallBegin, Part, Text
from pteron.serving.answer.tool_calls import ToolCallParser

TAGGED, BARE = CallFormat("json", "<tool_call>", "</tool_call>", arguments="arguments"), CallFormat()
CALL = '{"name": "weather", "arguments": {"city": "Paris"}}'
TAGGED_CALL = f"<tool_call>{CALL}</tool_call>"


def read(parts: list[str], parser: ToolCallParser) -> tuple[str, list[tuple[str, Any]]]:
    found = [part for text in parts for part in parser.push(text)] + parser.finish()
    said, calls = "", list[list[str]]()
    for part in found:
        if isinstance(part, CallBegin):
            calls.append([part.name, ""])
        elif isinstance(part, CallArguments):
            calls[-1][1] += part.text
        else:
            assert isinstance(part, Text)
            said += part.text
    return said, [(name, json.loads(arguments)) for name, arguments in calls]


def cut(text: str, places: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[start:end] for start, end in pairwise(edges)]


PARIS = ("weather", {"city": "Paris"})
TAGGED_TEXTS: dict[str, tuple[str, list[tuple[str, dict[str, str]]]]] = {
    "Hello, world": ("Hello, world", []),
    f"<tool_call>\n{CALL}\n</tool_call>": ("", [PARIS]),
    f'I\n{TAGGED_CALL}\n<tool_call>{{"name": "now"}}</tool_call>': ("I\n", [PARIS, ("now", {})]),
    "a < b and <tool> is none": ("a < b and <tool> is none", []),
    "<tool_call>not JSON</tool_call>!": ("<tool_call>not JSON</tool_call>!", []),
    f"<tool_call>{CALL}": ("", [PARIS]),  # the model stopped before the tag
    "<tool_call>{half": ("<tool_call>{half", []),
    "<tool_ca": ("<tool_ca", []),
    '<tool_call>{"name": "weather", "arguments": "{\\"city\\": \\"Paris\\"}"}</tool_call>': ("", [PARIS]),
}
# An unknown tool and invalid arguments stay text.
for call in ('{"name": "unknown", "arguments": {}}', '{"name": "weather", "arguments": 5}'):
    TAGGED_TEXTS[f"<tool_call>{call}</tool_call>"] = (f"<tool_call>{call}</tool_call>", [])
BARE_TEXTS = {
    "Hello, {world}": ("Hello, {world}", []),
    '{"name": "weather", "parameters": {"city": "Paris"}}': ("", [PARIS]),
    '\n\n<|python_tag|>{"name": "now", "parameters": {}}': ("", [("now", {})]),
    '{"name": "now", "parameters": {}}; {"name": "weather", "parameters": {"city": "Paris"}}': (
        "",
        [("now", {}), PARIS],
    ),
    f"[TOOL_CALLS][{CALL}]": ("", [PARIS]),
    '<|python_tag|>{"parameters": {"city": "Paris"}, "name": "weather"}': ("", [PARIS]),
    '{"answer": 42}': ('{"answer": 42}', []),
    "{not JSON": ("{not JSON", []),
    "<b>bold</b>": ("<b>bold</b>", []),
    "": ("", []),
}


@given(st.sampled_from(sorted(TAGGED_TEXTS)), st.lists(st.integers(0, 200), max_size=12))
def test_calls_between_tags(text: str, places: list[int]) -> None:
    assert read(cut(text, places), ToolCallParser({"weather", "now"}, TAGGED)) == TAGGED_TEXTS[text]


@given(st.sampled_from(sorted(BARE_TEXTS)), st.lists(st.integers(0, 200), max_size=12))
def test_calls_that_are_all_of_an_answer(text: str, places: list[int]) -> None:
    assert read(cut(text, places), ToolCallParser({"weather", "now"}, BARE)) == BARE_TEXTS[text]


def test_parameters_in_xml_are_typed_by_their_schemas() -> None:
    """JSON has neither NaN nor infinity; text stays as it is. Every call begins an object of its own."""
    format = CallFormat(
        "xml", "<tool_call>\n<function=", "</function>\n</tool_call>", separator=">",
        parameter="<parameter=", key_end=">", value_end="</parameter>",
    )  # fmt: skip
    kinds = {"n": {"type": "number"}, "m": {"type": "array"}, "s": {"type": "string"}}

    def call(**values: str) -> str:
        given = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
        return f"<tool_call>\n<function=now>\n{given}</function>\n</tool_call>"

    said = call(n="NaN", m="[1, 1e999]", s="7") + call(n="x") + call()
    expected = [{"n": None, "m": [1, None], "s": "7"}, {"n": "x"}, {}]
    for parts in ([said], [*said]):
        found = read(parts, ToolCallParser({"now": {"properties": kinds}}, format))
        assert found == ("", [("now", arguments) for arguments in expected])


def test_certain_text_is_returned_at_once() -> None:
    parser = ToolCallParser({"weather"}, TAGGED)
    assert parser.push("Hello <tool") == [Text("Hello ")]
    assert parser.push("box>") == [Text("<toolbox>")]
    assert ToolCallParser({"weather"}, BARE).push("Hello") == [Text("Hello")]


def test_arguments_are_returned_as_they_come() -> None:
    parser = ToolCallParser({"weather"}, TAGGED)
    assert parser.push('<tool_call>{"name": "wea') == []
    parts: list[Part] = parser.push('ther", "arguments": {"ci')
    assert isinstance(parts[0], CallBegin)
    assert parts[1:] == [CallArguments('{"ci')]
    assert parser.push('ty": "}\\"') == [CallArguments('ty": "}\\"')]  # a brace in a string is no end
    assert parser.push('"}}</tool_') == [CallArguments('"}')]
    assert parser.push("call>Done") == [Text("Done")]


def test_the_template_determines_the_format() -> None:
    assert answer_format(None).calls is None
    assert answer_format("{{ messages }}").calls is None
    assert answer_format(HERMES).calls == TAGGED
    assert answer_format(LLAMA).calls == BARE


class Scene:
    """A server whose model generates the text that a test sets."""

    def __init__(self, model: ScriptedModel, server: Running) -> None:
        self.model = model
        self.server = server

    def ask(self, text: str, **asked: Any) -> tuple[Any, list[Any]]:
        """The message of an answer, and the deltas of the same one streamed."""
        self.engine = play(self.server, Script([text[start : start + 5] for start in range(0, len(text), 5)]))
        self.model.conversations.clear()
        create = openai_client(self.server).chat.completions.create
        given: dict[str, Any] = {"model": NAME, "messages": MESSAGES, "tools": TOOLS} | asked
        whole = create(**given).choices[0]
        deltas = [chunk.choices[0] for chunk in create(**given, stream=True)]
        assert deltas[-1].finish_reason == whole.finish_reason
        assert whole.finish_reason == ("tool_calls" if whole.message.tool_calls else "stop")
        return whole.message, [delta.delta for delta in deltas]


@pytest.fixture(scope="module")
def scene(stories: LLM) -> Iterator[Scene]:
    model = ScriptedModel.like(stories, HERMES)
    with running(ScriptedEngine(model, lambda _: Script(["x"]))) as server:
        yield Scene(model, server)


def test_calls_of_a_chat(scene: Scene) -> None:
    message, deltas = scene.ask(f"One moment. {TAGGED_CALL}{TAGGED_CALL}")
    assert message.content == "One moment."
    assert [call.function.name for call in message.tool_calls] == ["weather", "weather"]
    assert len({call.id for call in message.tool_calls}) == 2
    assert json.loads(message.tool_calls[0].function.arguments) == {"city": "Paris"}
    assert together(deltas) == (
        "One moment. ",
        [(call.function.name, call.function.arguments) for call in message.tool_calls],
    )
    offered = scene.model.conversations[0]["tools"]
    assert offered[0]["function"]["parameters"] == WEATHER
    assert scene.engine.requests[0].grammar is not None  # of calls, if there are any


def test_one_call_at_a_time(scene: Scene) -> None:
    message, deltas = scene.ask(TAGGED_CALL * 2, parallel_tool_calls=False)
    assert len(message.tool_calls) == len(together(deltas)[1]) == 1


def test_tools_that_are_not_strict(scene: Scene) -> None:
    tools = [{**tool, "function": tool["function"] | {"strict": False}} for tool in TOOLS]
    message, _ = scene.ask(TAGGED_CALL, tools=tools)
    assert len(message.tool_calls) == 1
    assert scene.engine.requests[0].grammar is None


def test_tool_choice_none(scene: Scene) -> None:
    message, _ = scene.ask(TAGGED_CALL, tool_choice="none")
    assert message.tool_calls is None
    assert message.content == TAGGED_CALL
    assert scene.model.conversations[0]["tools"] is None


def test_a_turn_with_a_call_and_its_result(scene: Scene) -> None:
    function = {"name": "weather", "arguments": '{"city": "Paris"}'}
    call = {"id": "call_1", "type": "function", "function": function}
    turns: Any = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    ]
    message, _ = scene.ask("It rains.", messages=turns)
    assert message.content == "It rains."
    _, called, result = scene.model.conversations[0]["messages"]
    assert called["content"] == ""
    assert called["tool_calls"][0]["function"]["arguments"] == {"city": "Paris"}  # as templates know it
    assert result == {"role": "tool", "tool_call_id": "call_1", "content": "rain"}


@pytest.mark.parametrize("arguments", ["{", "[]", "5", ""])
def test_arguments_that_are_not_an_object(scene: Scene, arguments: str) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    turns: Any = [*MESSAGES, {"role": "assistant", "tool_calls": [call]}]
    with pytest.raises(openai.BadRequestError, match="JSON object"):
        scene.ask("x", messages=turns)


@pytest.mark.parametrize(("written", "sent"), [("NaN", None), ("-1e999", None), ('"\\ud83d"', "?")])
def test_arguments_that_json_cannot_have(scene: Scene, written: str, sent: str | None) -> None:
    """A prompt can make a model write them."""
    play(
        scene.server,
        Script([f'<tool_call>{{"name": "weather", "arguments": {{"city": {written}}}}}</tool_call>']),
    )
    body = {"model": NAME, "messages": MESSAGES, "max_tokens": 99}
    own = {"tools": [{"name": "weather", "input_schema": WEATHER}]}
    for stream in (False, True):
        response = scene.server.http.post("/api/chat", json=body | {"tools": TOOLS, "stream": stream})
        first = json.loads(response.text.splitlines()[0])
        assert first["message"]["tool_calls"][0]["function"]["arguments"] == {"city": sent}
        streamed = scene.server.http.post("/v1/messages", json=body | own | {"stream": True})
        assert streamed.text.count("event: message_stop") == 1
    whole = scene.server.http.post("/v1/messages", json=body | own).json()
    assert whole["content"][0]["input"] == {"city": sent}
    form = CallFormat("xml", "<f=", "</f>", separator=">", parameter="<p=", key_end=">", value_end="</p>")
    parser = ToolCallParser({"weather": {"properties": {"days": {"type": "number"}}}}, form)
    _, calls = read([f"<f=weather><p=days>{written}</p></f>"], parser)
    assert calls == [("weather", {"days": "\ud83d" if sent else None})]


def test_half_of_a_surrogate_pair(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments are JSON in a string, so the check of the body does not see it: the template writes it."""
    monkeypatch.setattr(scene.model, "prompt", "a call with \ud83d")
    body = {"model": NAME, "messages": MESSAGES}
    for route in ("/apply_template", "/tokenize", "/v1/chat/completions"):
        found = error(scene.server.http.post(route, json=body), 400)
        assert (found["param"], "surrogate" in found["message"]) == ("messages", True)


def test_variables_reach_the_template(scene: Scene) -> None:
    """What a client states for the template wins."""
    kwargs = {"enable_thinking": False, "reasoning_effort": "high"}
    scene.ask("x", reasoning_effort="low", extra_body={"chat_template_kwargs": kwargs})
    seen = scene.model.conversations[0]
    assert (seen["enable_thinking"], seen["reasoning_effort"]) == (False, "high")


def test_the_newer_name_of_a_length_wins(scene: Scene) -> None:
    scene.ask("x", max_tokens=7, max_completion_tokens=5)
    assert {request.max_new_tokens for request in scene.engine.requests} == {5}
    limit = scene.server.app.state.server.limits.seconds  # from the arrival on
    assert all(request.seconds and 0 < request.seconds < limit for request in scene.engine.requests)


def test_without_ends_there_are_no_stops_of_the_model(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scene.model, "chat_stops", ("User:",))
    for ignores, stops in ((False, ("END", "User:")), (True, ("END",))):
        scene.ask("x", stop="END", extra_body={"ignore_eos": ignores})
        assert {request.stop for request in scene.engine.requests} == {stops}


def test_a_chosen_tool_is_the_only_one(scene: Scene) -> None:
    choice: Any = {"type": "function", "function": {"name": "now"}}
    scene.ask('{"name": "now", "arguments": {}}', tool_choice=choice)
    assert [tool["function"]["name"] for tool in scene.model.conversations[0]["tools"]] == ["now"]


def test_an_unknown_tool_cannot_be_chosen(scene: Scene) -> None:
    choice: Any = {"type": "function", "function": {"name": "fly"}}
    with pytest.raises(openai.BadRequestError, match="no tool 'fly'"):
        scene.ask("x", tool_choice=choice)


def test_tools_are_checked_together(scene: Scene) -> None:
    with pytest.raises(openai.BadRequestError, match="two tools have the same name"):
        scene.ask("x", tools=[*TOOLS, TOOLS[1]])
    large = [
        {"type": "function", "function": {"name": name, "parameters": {"description": "x" * 70_000}}}
        for name in ("a", "b")
    ]
    with pytest.raises(openai.BadRequestError, match="the limit is 131072"):
        scene.ask("x", tools=large)
    scene.ask("x", tools=large[:1])


class BareTokenizer(ByteTokenizer):
    """It names no token that ends a text; the model's program does: token 2."""

    eos_ids = ()
    chat_template = "{% if tools %}<tool_call>{…}</tool_call>{% endif %}Hi"  # the context is short


@pytest.mark.parametrize(
    "given",
    [{"tools": TOOLS}, {"response_format": {"type": "grammar", "syntax": "regex", "definition": "[a-z]*"}}],
    ids=["tools", "format"],
)
def test_grammars_allow_the_end_token_of_the_model(device: Device, given: dict[str, Any]) -> None:
    """A model that wants to end its answer, under a grammar that lets it."""
    pytest.importorskip("llguidance", reason="needs the extra `serve`")
    body = {"messages": MESSAGES, "max_tokens": 6, "temperature": 0, "logit_bias": {"2": 100}, **given}
    with LLM(MODEL, BareTokenizer(), device=device) as llm, running(llm) as server:
        answer = server.http.post("/v1/chat/completions", json=body).json()
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == 1
