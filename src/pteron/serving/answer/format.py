"""AnswerFormat: how a model writes its reasoning and its tool calls, derived from its chat template.

The template is rendered with and without an answer that has reasoning, and one that has calls; where they
differ, the model's own form stands. A template that renders no calls of its own is searched for tags.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from pteron.errors import InputError
from pteron.llm.chat import render

TAG = re.compile(r"<[^<>\s]{1,60}>|\[/?[A-Z_]{2,30}\]")
_REASONING_TAG = re.compile(r"<(/)(\w*think\w*|reasoning)>|\[(/)(THINK)\]")
_CALL_TAG = re.compile(r"(?i)<\|?\w*(?:tool|function)_?calls?\|?>|\[TOOL_CALLS\]")
_REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
_NAMES, _MARK, _REASON = ("first_tool", "second_tool"), "content_mark", "reason_mark"
_IDS = ("abcdefgh1", "abcdefgh2")  # some templates ask for nine letters and digits
_USER = {"role": "user", "content": "question_mark"}
_KEYS = ("key_mark", "other_mark")
_STRING = {"type": "string", "description": "x"}
_PARAMETERS = {"type": "object", "properties": dict.fromkeys(_KEYS, _STRING)}
_TOOLS = [
    {"type": "function", "function": {"name": name, "description": "x", "parameters": _PARAMETERS}}
    for name in _NAMES
]
Style: TypeAlias = Literal["json", "list", "named", "xml"]
HARMONY = ("<|channel|>", "<|message|>")  # gpt-oss
_HARMONY_CALL = "<|channel|>commentary to=functions."


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The tags around reasoning, and the field of a message that the template reads."""

    opening: str
    closing: str
    field: str = "reasoning_content"

    def is_open(self, prompt: str) -> bool:
        """Whether a prompt ends inside reasoning, which the model continues."""
        return bool(self.opening) and prompt.rfind(self.opening) > prompt.rfind(self.closing)


@dataclass(frozen=True, slots=True)
class CallFormat:
    """How calls are written.

    "json": an object with name and arguments, per call, between `opening` and `closing` (both empty: the
    answer is the call). "list": one list of such objects. "named": `opening`, the name, `separator`, the
    arguments, `closing`. "xml": `opening`, the name, `separator`, for each argument `parameter`, its key,
    `key_end`, its value and `value_end`, then `closing`. `section` and `section_end` surround all calls.
    """

    style: Style = "json"
    opening: str = ""
    closing: str = ""
    section: str = ""
    section_end: str = ""
    separator: str = ""
    arguments: str = "parameters"  # the key of the arguments
    as_text: bool = False  # the template takes arguments as a string of JSON
    parameter: str = ""
    key_end: str = ""
    value_end: str = ""

    @property
    def prefix(self) -> str:
        """The text before the first call."""
        return self.section + self.opening

    @property
    def tags(self) -> tuple[str, ...]:
        """The first tag of a section and of a call; none if calls have no tags."""
        found = [tag[0] for text in (self.prefix, self.opening) if (tag := TAG.search(text))]
        if self.style == "xml":  # models leave out the tag around it
            found.append(self.opening[self.opening.rfind("<") :])
        return tuple(dict.fromkeys(found))

    @property
    def ends(self) -> tuple[str, ...]:
        """The texts that may follow a call."""
        found = [text.strip() for text in (self.closing, self.section_end, self.closing + self.section_end)]
        found += TAG.findall(self.closing) if self.style == "xml" else []
        return tuple(sorted({text for text in found if text}, key=len, reverse=True))


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """`calls` is None if the template does not present tools. `is_harmony`: gpt-oss, whose answers are
    messages with channels."""

    reasoning: Reasoning | None = None
    calls: CallFormat | None = None
    is_harmony: bool = False


@lru_cache(maxsize=16)
def answer_format(template: str | None, bos: str = "", eos: str = "") -> AnswerFormat:
    """The form of answers that a chat template shows."""
    if template is None:
        return AnswerFormat()
    shown = _Template(template, bos, eos)
    if all(tag in template for tag in HARMONY):
        calls = CallFormat("named", _HARMONY_CALL, separator=" <|constrain|>json<|message|>")
        return AnswerFormat(Reasoning("", "", "thinking"), calls if "tools" in template else None, True)
    return AnswerFormat(_reasoning(shown), _calls(shown))


class _Template:
    """A template that renders probes; None if it refuses one."""

    def __init__(self, template: str, bos: str, eos: str) -> None:
        self.source = template
        self._bos, self._eos = bos, eos

    def render(self, *answer: Mapping[str, Any], **variables: Any) -> str | None:
        try:
            return render([_USER, *answer], self.source, bos=self._bos, eos=self._eos, **variables)
        except InputError:
            return None

    def answer(self, fields: Mapping[str, Any], **variables: Any) -> str | None:
        """An assistant's message as it follows the prompt."""
        message = {"role": "assistant", "content": "", **fields}
        whole = self.render(message, add_generation_prompt=False, **variables)
        prompt = self.render(**variables)
        if whole is None or prompt is None:
            return None
        shared = _shared(whole, prompt)
        for opening, closing in ("<>", "[]"):  # do not cut a tag in two
            start = shared.rfind(opening)
            if start >= 0 and closing not in shared[start:]:
                shared = shared[:start]
        return whole[len(shared) :]


def _shared(a: str, b: str) -> str:
    """The beginning that two texts share."""
    size = next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return a[:size]


def _reasoning(template: _Template) -> Reasoning | None:
    for field in _REASONING_FIELDS:
        text = template.answer({"content": _MARK, field: _REASON})
        if text is not None and _REASON in text and _MARK in text:
            before, _, rest = text.partition(_REASON)
            opened, closed = TAG.findall(before), TAG.findall(rest.partition(_MARK)[0])
            if opened and closed:
                return Reasoning(opened[-1], closed[0], field)
    for variable in ("enable_thinking", "thinking"):  # without thinking, a prompt may have it empty
        prompts = [template.render(**{variable: value}) for value in (True, False)]
        if all(prompts) and prompts[0] != prompts[1]:
            shared = _shared(str(prompts[0]), str(prompts[1]))
            tags = TAG.findall(str(prompts[1])[shared.rfind("<") if shared.endswith("<") else len(shared) :])
            if len(tags) == 2 and tags[1] in (f"</{tags[0][1:]}", f"[/{tags[0][1:]}"):
                return Reasoning(*tags)
    found = _REASONING_TAG.search(template.source)
    return Reasoning(found[0].replace("/", ""), found[0]) if found else None


def _calls(template: _Template) -> CallFormat | None:
    plain, with_tools = template.render(), template.render(tools=_TOOLS)
    if "tools" not in template.source or with_tools is None or (plain == with_tools):
        return None
    for as_text in (False, True):
        calls = [_call(number, as_text) for number in range(2)]
        one = template.answer({"tool_calls": calls[:1]}, tools=_TOOLS)
        if one is None or _NAMES[0] not in one:
            continue
        two = template.answer({"tool_calls": calls}, tools=_TOOLS)
        ended = template.answer({"content": _MARK}, tools=_TOOLS) or ""
        turn_end = ended.rpartition(_MARK)[2]
        found = _rendered_calls(one, two, turn_end, as_text)
        if found is not None:
            return found
    presented = with_tools if plain is None else with_tools.replace(plain, "")
    tag = _CALL_TAG.search(presented)
    if tag is None:
        return CallFormat()
    closing = next((end for end in _closings(tag[0]) if end in presented), "")
    style: Literal["json", "list"] = "list" if re.match(r"\s*\[", presented[tag.end() :]) else "json"
    return CallFormat(style, tag[0], closing, arguments="arguments")


def _closings(tag: str) -> tuple[str, ...]:
    return (f"{tag[0]}/{tag[1:]}", f"{tag[:2]}/{tag[2:]}")  # </tool_call>, <|/tool_call|>


def _call(number: int, as_text: bool) -> dict[str, Any]:
    given = _arguments(number)
    function = {"name": _NAMES[number], "arguments": json.dumps(given) if as_text else given}
    return {"id": _IDS[number], "type": "function", "function": function}


def _arguments(number: int) -> dict[str, str]:
    return {key: f"{key}_value_{number}" for key in _KEYS}


def _rendered_calls(one: str, two: str | None, turn_end: str, as_text: bool) -> CallFormat | None:
    """The format of a call, and of two if the template allows them."""
    first = _find_call(one, 0) or _find_parameters(one, 0)
    if first is None:
        return None
    start, end, key = first
    after = one[end:].removesuffix(turn_end)
    if key is None:  # the name is outside of the JSON of the arguments
        start = one.index(_NAMES[0])
        separator = one[start + len(_NAMES[0]) : first[0]]
        style: Style = "named"
    else:
        style, separator = ("list" if one[start] == "[" else "json"), ""
    before = one[:start]
    opening, closing, section, section_end = before, after, "", ""
    second = None
    if two is not None and style != "list":
        second = _find_call(two, 1) or _find_parameters(two, 1)
    if two is not None and second is not None and two.startswith(one[:end]):
        place = second[0] if second[2] else two.index(_NAMES[1])
        middle, last = two[end:place], two[second[1] :].removesuffix(turn_end)
        opening = _shared(before[::-1], middle[::-1])[::-1]
        closing = _shared(middle[: len(middle) - len(opening)], last)
        section, section_end = before[: len(before) - len(opening)], last[len(closing) :]
    if not TAG.search(before):  # the answer is the call, or what is rendered is none
        return None if key is None else CallFormat(arguments=key, as_text=as_text)
    found = CallFormat(style, opening, closing, section, section_end, separator, key or "arguments", as_text)
    return found if key or _find_call(one, 0) else _with_parameters(found, one)


def _with_parameters(format: CallFormat, one: str) -> CallFormat | None:
    """The format of calls whose arguments are not JSON: how each of them is written, with tags."""
    (first_key, first_value), (second_key, _) = _arguments(0).items()
    head, _, rest = one.partition(_NAMES[0])[2].partition(first_key)
    key_end, _, rest = rest.partition(first_value)
    middle = rest.partition(second_key)[0]
    parameter = _shared(head[::-1], middle[::-1])[::-1]
    if "<" not in parameter:
        return None
    parameter = parameter[parameter.rfind("<") :]
    value_end = _shared(middle[: len(middle) - len(parameter)], format.closing)
    return replace(
        format,
        style="xml",
        separator=head[: len(head) - len(parameter)],
        parameter=parameter,
        key_end=key_end,
        value_end=value_end,
        closing=format.closing[len(value_end) :],
    )


def _find_parameters(text: str, number: int) -> tuple[int, int, None] | None:
    """Where the arguments of a call begin and end, if each is written by itself."""
    texts = [_NAMES[number], *(text for pair in _arguments(number).items() for text in pair)]
    found = re.search(".*?".join(map(re.escape, texts)), text, re.DOTALL)
    return (found.start() + len(_NAMES[number]), found.end(), None) if found else None


def _find_call(text: str, number: int) -> tuple[int, int, str | None] | None:
    """Where the JSON of a call begins and ends, and its key of the arguments; None if the JSON is that of the
    arguments alone."""
    decoder = json.JSONDecoder()
    for start in (at for at, character in enumerate(text) if character in "{["):
        try:
            value, end = decoder.raw_decode(text, start)
        except ValueError:
            continue
        if value == _arguments(number):
            return start, end, None
        item = value[0] if isinstance(value, list) and value else value
        item = item.get("function", item) if isinstance(item, dict) else {}
        if isinstance(item, dict) and item.get("name") == _NAMES[number]:
            keys = [key for key, found in item.items() if "key_mark" in str(found)]
            return start, end, keys[0] if keys else "arguments"
    return None
