"""The form of answers: derived from templates of many families, parsed from text in pieces, written by each
API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from http_fixtures import NAME, Running, openai_client, running
from hypothesis import given
from hypothesis import strategies as st
from scripted import Script, ScriptedEngine, ScriptedModel, play
from template_fixtures import FAMILIES, PARIS, QWEN_3, ROME
from tool_fixtures import MESSAGES, TOOLS, WEATHER

from pteron.llm import LLM, Piece
from pteron.serving.answer.format import CallFormat, answer_format
from pteron.serving.answer.parser import AnswerParser, control_tags
from pteron.serving.answer.parts import CallArguments, CallBegin, End, Part, Text, Thought
from pteron.serving.prompt.tool_grammar import forced_grammar

NAMES = ("weather", "now")


def joined(parts: list[Part]) -> tuple[str, str, list[tuple[str, str]]]:
    """Reasoning, text, and calls."""
    thought, text, calls = "", "", list[list[str]]()
    for part in parts:
        match part:
            case Thought(more):
                thought += more
            case Text(more):
                text += more
            case CallBegin(_, name):
                calls.append([name, ""])
            case CallArguments(more):
                calls[-1][1] += more
    return thought, text, [(name, arguments) for name, arguments in calls]


def parsed(family: str, places: list[int]) -> tuple[str, str, list[tuple[str, str]]]:
    case = FAMILIES[family]
    edges = sorted({0, len(case.said), *(place % (len(case.said) + 1) for place in places)})
    parser = AnswerParser(answer_format(case.template), NAMES, is_thinking=family == "DeepSeek")
    parts = [
        part for start, end in pairwise(edges) for part in parser.add(Piece(0, case.said[start:end], 0.0))
    ]
    parts += parser.end("stop", "")
    assert parts[-1] == End("tool_calls" if case.count else "stop")
    return joined(parts)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_format_is_derived(family: str) -> None:
    case = FAMILIES[family]
    found = answer_format(case.template, "<s>", "</s>")
    assert found.calls == case.calls
    tags = None if found.reasoning is None else (found.reasoning.opening, found.reasoning.closing)
    assert tags == case.thinks


@given(st.sampled_from(sorted(FAMILIES)), st.lists(st.integers(0, 500), max_size=20))
def test_answers_in_pieces(family: str, places: list[int]) -> None:
    case = FAMILIES[family]
    thought, text, calls = parsed(family, places)
    assert thought == ("Hm." if case.thinks else "")
    said = "It rains." if family == "Gemma 3" else "Let me see.\n" if "Let me see" in case.said else ""
    assert text == said
    assert calls == [("weather", PARIS), ("weather", ROME)][: case.count]


@pytest.mark.parametrize("family", [name for name, case in FAMILIES.items() if case.calls])
def test_forced_calls(stories: LLM, family: str) -> None:
    """The grammar allows a call in the model's form, and the parser reads it."""
    grammar = pytest.importorskip("pteron.llm.grammar")
    pytest.importorskip("llguidance", reason="needs the extra `serve`")
    found = answer_format(FAMILIES[family].template)
    assert found.calls is not None
    tools: dict[str, Any] = {"weather": WEATHER, "now": None}
    source = forced_grammar(tools, found.calls, parallel=True)
    matcher = grammar.Grammar.lark(stories.tokenizer, source).matcher()
    style, one, two = found.calls.style, *(_written(found.calls, city) for city in (PARIS, ROME))
    if style == "list":
        text = f"[{one}, {two}]"
    elif found.calls.tags and not found.is_harmony:
        text = f"{one}{found.calls.closing}\n{found.calls.opening}{two}"
    else:
        text = one
    text += found.calls.closing if style == "xml" else ""
    for byte in text.encode():
        matcher.take(3 + byte)  # llama2.c's tokens of single bytes
    assert matcher.may_end
    parser = AnswerParser(found, tools, is_call=True)
    parts = [part for letter in text for part in parser.add(Piece(0, letter, 0.0))]
    calls = [("weather", PARIS), ("weather", ROME)][: text.count("weather")]
    assert joined([*parts, *parser.end("stop", "")]) == ("", "", calls)


def _written(calls: CallFormat, arguments: str) -> str:
    """A call as a model writes it, without its opening and closing."""
    if calls.style == "named":
        return f"weather{calls.separator}{arguments}"
    if calls.style != "xml":
        return json.dumps({"name": "weather", calls.arguments: json.loads(arguments)})
    (city,) = json.loads(arguments).values()
    return f"weather{calls.separator}{calls.parameter}city{calls.key_end}{city}{calls.value_end}"


def test_control_tokens_are_read_by_name() -> None:
    """A control token has no text: its piece is empty."""
    found = answer_format(FAMILIES["Mistral"].template)
    parser = AnswerParser(found, NAMES, controls={5: "[TOOL_CALLS]"})
    pieces = [Piece(5, "", 0.0), Piece(9, f'[{{"name": "weather", "arguments": {PARIS}}}]', 0.0)]
    parts = [part for piece in pieces for part in parser.add(piece)]
    assert joined([*parts, *parser.end("stop", "")])[2] == [("weather", PARIS)]


def test_which_tags_are_control_tokens() -> None:
    """Those that have no text of their own: of others the text is read."""
    found = answer_format(QWEN_3.template)
    ids = {"<tool_call>": 5, "</tool_call>": 6, "<think>": 7, "<other>": 8}
    tokenizer: Any = SimpleNamespace(token_id=ids.get, token_bytes=lambda id: b"<think>" if id == 7 else b"")
    assert control_tags(found, tokenizer) == {5: "<tool_call>", 6: "</tool_call>"}


def test_arguments_that_are_cut() -> None:
    parser = AnswerParser(answer_format(QWEN_3.template), NAMES)
    parts = list(parser.add(Piece(0, '<tool_call>{"name": "weather", "arguments": {"ci', 0.0)))
    parts += parser.end("length", "")
    assert joined(parts) == ("", "", [("weather", '{"ci')])
    assert parts[-1] == End("length")


def test_tokens_of_reasoning_are_counted_and_have_no_logprobs() -> None:
    parser = AnswerParser(answer_format(QWEN_3.template), NAMES)
    texts, top = ("<think>", "Hm", ".", "</think>", "\n\n", "Yes"), ((1, -0.5),)
    found = [list(parser.add(Piece(0, text, -0.5, top))) for text in texts]
    assert parser.reasoning_tokens == 2
    with_piece = [[isinstance(part, Text) and part.piece is not None for part in parts] for parts in found]
    assert with_piece == [[True], [False], [False], [True], [True], [True]]


def test_reasoning_that_is_cut() -> None:
    parser = AnswerParser(answer_format(QWEN_3.template), NAMES, is_thinking=True)
    parts = list(parser.add(Piece(0, "Hm</thi", 0.0)))
    assert [*parts, *parser.end("length", "")] == [Thought("Hm"), Thought("</thi"), End("length")]


class Scene:
    """A server of a model with Qwen3's form, whose answers tests set."""

    def __init__(self, model: ScriptedModel, server: Running) -> None:
        self.model = model
        self.server = server

    def play(self, text: str = QWEN_3.said, prompt: str = "rendered") -> ScriptedEngine:
        self.model.prompt = prompt
        return play(self.server, Script([text[at : at + 5] for at in range(0, len(text), 5)]))

    def post(self, route: str, **body: Any) -> Any:
        response = self.server.http.post(route, json={"model": NAME, **body})
        assert response.status_code == 200, response.text
        return response.json()


@pytest.fixture(scope="module")
def scene(stories: LLM) -> Iterator[Scene]:
    model = ScriptedModel.like(stories, QWEN_3.template)
    with running(ScriptedEngine(model, lambda _: Script(["x"]))) as server:
        yield Scene(model, server)


def test_reasoning_of_a_chat(scene: Scene) -> None:
    scene.play()
    create: Any = openai_client(scene.server).chat.completions.create
    asked = {"model": NAME, "messages": MESSAGES, "tools": TOOLS}
    whole = create(**asked)
    message = whole.choices[0].message
    assert (message.reasoning_content, message.reasoning) == ("Hm.", "Hm.")
    assert message.content == "Let me see."
    assert [json.loads(call.function.arguments)["city"] for call in message.tool_calls] == ["Paris", "Rome"]
    assert whole.usage.completion_tokens_details.reasoning_tokens > 0
    deltas = [chunk.choices[0].delta for chunk in create(**asked, stream=True)]
    for name in ("reasoning_content", "reasoning"):
        assert "".join(getattr(delta, name, None) or "" for delta in deltas) == "Hm."
    parts = [part.function.arguments for delta in deltas for part in delta.tool_calls or ()]
    assert "".join(parts) == PARIS + ROME
    assert len(parts) > 6  # arguments come in several parts


def test_a_prompt_that_begins_reasoning(scene: Scene) -> None:
    scene.play("Hm.\n</think>\n\nIt rains.", prompt="…<think>\n")
    message = scene.post("/v1/chat/completions", messages=MESSAGES)["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "It rains.")
    scene.play("{}", prompt="…<think>\n")  # an answer with a grammar begins at once
    body = {"messages": MESSAGES, "response_format": {"type": "json_object"}}
    message = scene.post("/v1/chat/completions", **body)["choices"][0]["message"]
    assert message["content"] == "{}"
    assert "reasoning_content" not in message
    assert scene.model.encoded == "…<think>\n</think>\n\n"
    scene.play('{"name": "now", "arguments": {}}', prompt="…<think>\n")
    scene.post("/v1/chat/completions", messages=MESSAGES, tools=TOOLS, tool_choice="required")
    assert scene.model.encoded == "…<think>\n</think>\n\n<tool_call>\n"


def test_reasoning_of_other_apis(scene: Scene) -> None:
    scene.play()
    tool = {"name": "weather", "input_schema": WEATHER}
    blocks = scene.post("/v1/messages", messages=MESSAGES, max_tokens=9, tools=[tool])["content"]
    assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use", "tool_use"]
    assert blocks[0]["thinking"] == "Hm."
    function = {"type": "function", "name": "weather", "parameters": WEATHER}
    found = scene.post("/v1/responses", input="Weather?", tools=[function])
    assert [item["type"] for item in found["output"]] == ["reasoning", "message"] + ["function_call"] * 2
    assert found["output"][0]["content"] == [{"type": "reasoning_text", "text": "Hm."}]
    assert found["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
    events = openai_client(scene.server).responses.create(model=NAME, input="Weather?", stream=True)
    thoughts = [event.delta for event in events if event.type == "response.reasoning_text.delta"]
    assert "".join(thoughts) == "Hm."
    message = scene.post("/api/chat", messages=MESSAGES, tools=TOOLS, stream=False)["message"]
    assert (message["thinking"], message["content"], len(message["tool_calls"])) == (
        "Hm.",
        "Let me see.\n",
        2,
    )


def test_reasoning_goes_back_to_the_template(scene: Scene) -> None:
    for name in ("reasoning_content", "reasoning"):
        scene.play("x")
        turn = {"role": "assistant", "content": "Yes.", name: "Hm."}
        scene.post("/v1/chat/completions", messages=[*MESSAGES, turn, *MESSAGES], reasoning_effort="low")
        seen = scene.model.conversations[-1]
        assert seen["messages"][1]["reasoning_content"] == seen["messages"][1]["thinking"] == "Hm."
        assert seen["reasoning_effort"] == "low"


@pytest.mark.parametrize(("effort", "thinks"), [("none", False), ("low", True)])
def test_reasoning_effort(scene: Scene, effort: str, thinks: bool) -> None:
    scene.play("x")
    scene.post("/v1/chat/completions", messages=MESSAGES, reasoning_effort=effort)
    scene.post("/v1/responses", input="Hi", reasoning={"effort": effort})
    for seen in scene.model.conversations[-2:]:
        assert (seen["reasoning_effort"], seen["enable_thinking"]) == (effort, thinks)


def test_arguments_as_text(stories: LLM) -> None:
    """DeepSeek's template joins them to a text."""
    model = ScriptedModel.like(stories, FAMILIES["DeepSeek"].template)
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": PARIS}}
    turns = [*MESSAGES, {"role": "assistant", "tool_calls": [call]}]
    with running(ScriptedEngine(model, lambda _: Script(["x"]))) as server:
        body = {"model": NAME, "messages": turns, "tools": TOOLS}
        assert server.http.post("/v1/chat/completions", json=body).status_code == 200
    seen = model.conversations[-1]["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert seen == PARIS
