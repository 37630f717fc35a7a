"""Grammars of tool calls: free text, and calls that are well-formed from their first tag on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from template_fixtures import DEEPSEEK, FAMILIES, GPT_OSS, LLAMA_3, QWEN_3, QWEN_3_CODER
from tool_fixtures import WEATHER

from pteron.errors import InputError
from pteron.llm import LLM
from pteron.serving.answer.format import answer_format
from pteron.serving.prompt.tool_grammar import forced_grammar, is_text, lazy_grammar

pytest.importorskip("llguidance", reason="needs the extra `serve`")
from pteron.llm.grammar import Grammar, Matcher

TOOLS: dict[str, Any] = {"weather": WEATHER, "now": None}
CALLING = [name for name, case in FAMILIES.items() if case.calls and name != "gpt-oss"]


def lazy(stories: LLM, template: str, tools: Any = None, **options: Any) -> Matcher:
    source = lazy_grammar(tools or TOOLS, answer_format(template), **{"parallel": True, **options})
    assert source is not None
    return Grammar.lark(stories.tokenizer, source).matcher()


def feed(matcher: Matcher, text: str, controls: dict[str, int] | None = None) -> str:
    """Give a text to a matcher, byte by byte; returns what was accepted."""
    at = 0
    while at < len(text):
        tag = next((tag for tag in controls or () if text.startswith(tag, at)), text[at])
        try:
            for token in [controls[tag]] if controls and tag in controls else [3 + b for b in tag.encode()]:
                matcher.take(token)  # llama2.c has a token for each byte
        except InputError:
            break
        at += len(tag)
    return text[:at]


@pytest.mark.parametrize("family", CALLING)
def test_answers_of_all_families(stories: LLM, family: str) -> None:
    case = FAMILIES[family]
    for text in (case.said, "It rains < 5 mm. {x}"):
        matcher = lazy(stories, case.template, is_thinking=family == "DeepSeek")
        assert feed(matcher, text) == text
        assert matcher.may_end


@pytest.mark.parametrize("family", CALLING)
@pytest.mark.parametrize(
    ("right", "wrong"), [("weather", "whether"), ("Paris", 'Pa"}{ris'), ("city", "town")], ids=str
)
def test_calls_that_are_not_well_formed(stories: LLM, family: str, right: str, wrong: str) -> None:
    case = FAMILIES[family]
    text = case.said.replace(right, wrong, 1)
    if right == "Paris" and family in ("Qwen3-Coder", "GLM-4.5"):
        pytest.skip("any text is a value")
    matcher = lazy(stories, case.template, is_thinking=family == "DeepSeek")
    if family == "Llama 3" and right == "weather":
        assert feed(matcher, text) == text  # it is an answer in JSON
        return
    accepted = feed(matcher, text)
    begin = case.said.index(right)
    assert begin <= len(accepted) < begin + len(wrong)


def test_tags_in_reasoning_begin_no_call(stories: LLM) -> None:
    call = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    text = f"<think>\nShall I write <tool_call>?\n</think>\n\n{call}"
    assert feed(lazy(stories, QWEN_3.template), text) == text
    wrong = text.replace('"now"', '"fly"')
    assert feed(lazy(stories, QWEN_3.template), wrong).endswith('{"name": "')
    inside = "Shall I write <tool_call>?"
    matcher = lazy(stories, QWEN_3.template, is_thinking=True)
    assert feed(matcher, inside) == inside
    assert matcher.may_end
    assert feed(matcher, wrong.partition("?")[2]).endswith('{"name": "')


def test_one_call_ends_the_answer(stories: LLM) -> None:
    call = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    matcher = lazy(stories, QWEN_3.template, parallel=False)
    assert feed(matcher, f"Well. {call}") == f"Well. {call}"
    assert matcher.is_finished
    bare = '{"name": "now", "parameters": {}}'
    matcher = lazy(stories, LLAMA_3.template)
    assert feed(matcher, bare) == bare
    assert matcher.is_finished


def test_control_tokens(stories: LLM) -> None:
    """A tag that is a control token has no text: it stands in the grammar by its id."""
    text = '<think>a</think>b<tool_call>{"name": "now", "arguments": {}}</tool_call>c'
    matcher = lazy(stories, QWEN_3.template, controls={0: "<tool_call>"})
    assert feed(matcher, text, {"<tool_call>": 0}) == text
    assert matcher.may_end
    matcher = lazy(stories, QWEN_3.template, controls={0: "<think>"})
    assert feed(matcher, text, {"<think>": 0}) == text
    matcher = lazy(stories, QWEN_3.template, controls={0: "</think>"}, is_thinking=True)
    assert feed(matcher, text[len("<think>") :], {"</think>": 0}) == text[len("<think>") :]


def test_channels_of_gpt_oss(stories: LLM) -> None:
    tags = ("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>")
    controls = {tag: 300 + number for number, tag in enumerate(tags)}  # tokens of words, which it lacks here
    ids = {id: tag for tag, id in controls.items()}
    assert feed(lazy(stories, GPT_OSS.template, controls=ids), GPT_OSS.said, controls) == GPT_OSS.said
    wrong = GPT_OSS.said.replace("weather", "fly")
    accepted = feed(lazy(stories, GPT_OSS.template, controls=ids), wrong, controls)
    assert accepted.endswith("to=functions.")
    assert lazy_grammar(TOOLS, answer_format(GPT_OSS.template), parallel=True) is None


def test_parameters_in_xml(stories: LLM) -> None:
    unit = {"type": "string", "enum": ["C", "F"]}
    place = {"$ref": "#/$defs/place"}
    properties = {"place": place, "unit": unit, "days": {"type": "integer"}, "note": {"type": "string"}}
    schema = {
        "type": "object",
        "properties": properties,
        "required": ["place"],
        "$defs": {"place": {"type": "object", "properties": {"city": {"type": "string"}}}},
    }
    head, end = "<tool_call>\n<function=weather>\n", "</function>\n</tool_call>"

    def parameter(key: str, value: str) -> str:
        return f"<parameter={key}>\n{value}\n</parameter>\n"

    paris = parameter("place", '{"city": "Paris"}')
    right = [
        paris,
        paris + parameter("days", "3") + parameter("note", "a\n<b>"),
        paris + parameter("unit", "F"),
    ]
    for text in right:
        matcher = lazy(stories, QWEN_3_CODER.template, {"weather": schema})
        assert feed(matcher, head + text + end) == head + text + end
    for text in (
        "",
        parameter("place", "Paris"),
        paris + parameter("unit", "K"),
        paris + parameter("days", "x"),
    ):
        matcher = lazy(stories, QWEN_3_CODER.template, {"weather": schema})
        assert feed(matcher, head + text + end) != head + text + end


def test_parameters_that_are_not_described(stories: LLM) -> None:
    """Any may be given; references may have the older name of definitions."""
    text = "<tool_call>\n<function=go>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
    older = {"definitions": {"a": {"type": "integer"}}, "properties": {"a": {"$ref": "#/definitions/a"}}}
    for schema, fits in (({"properties": {}}, True), ({}, True), (older, True)):
        matcher = lazy(stories, QWEN_3_CODER.template, {"go": schema})
        assert (feed(matcher, text) == text) is fits
    wrong = text.replace("1", "x")
    assert feed(lazy(stories, QWEN_3_CODER.template, {"go": older}), wrong) != wrong


def test_references_in_schemas(stories: LLM) -> None:
    schema = {"type": "object", "properties": {"to": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"const": "x"}}}
    format = answer_format(QWEN_3.template).calls
    assert format is not None
    source = forced_grammar({"go": schema}, format, parallel=False)
    for value, fits in (("x", True), ("y", False)):
        text = json.dumps({"name": "go", "arguments": {"to": value}})
        assert (feed(Grammar.lark(stories.tokenizer, source).matcher(), text) == text) == fits


def test_a_tool_without_a_schema_takes_any_object(stories: LLM) -> None:
    for arguments, fits in (
        ('{"a": [1]}', True),
        ("{}", True),
        ("5", False),
        ('"a"', False),
        ("null", False),
    ):
        text = f'<tool_call>{{"name": "now", "arguments": {arguments}}}</tool_call>'
        assert (feed(lazy(stories, QWEN_3.template), text) == text) is fits


def test_a_section_of_calls(stories: LLM) -> None:
    """DeepSeek's calls follow each other without text between them."""
    matcher = lazy(stories, DEEPSEEK.template)
    start = DEEPSEEK.said.index("<｜tool▁calls▁begin")  # noqa: RUF001
    text = DEEPSEEK.said[start:].replace("\n<｜tool▁call▁begin", "and <｜tool▁call▁begin", 1)  # noqa: RUF001
    assert feed(matcher, text).endswith("end｜>")  # noqa: RUF001


def test_schemas_beyond_the_limits() -> None:
    deep: dict[str, Any] = {}
    for _ in range(70):
        deep = {"type": "object", "properties": {"a": deep}}
    with pytest.raises(InputError, match="nested"):
        lazy_grammar({"go": deep}, answer_format(QWEN_3.template), parallel=True)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [({}, True), ({"type": "string"}, True), ({"type": ["string", "null"]}, True),
     ({"type": "integer"}, False), ({"$ref": "#/$defs/a"}, False), ({"description": "x"}, True)],
    ids=str,
)  # fmt: skip
def test_which_parameters_are_text(schema: dict[str, Any], expected: bool) -> None:
    assert is_text(schema) is expected
