"""ToolCallParser: a model's text, as it is generated -> plain text and tool calls."""

from __future__ import annotations

import json
import math
import re
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pteron.serving.answer.format import TAG, CallFormat
from pteron.serving.answer.parts import CallArguments, CallBegin, Part, Text, partial_tag
from pteron.serving.prompt.tool_grammar import is_text

_ARGUMENTS = ("arguments", "parameters")
_PREFIXES = ("<|python_tag|>", "[TOOL_CALLS]")  # some models write these before bare calls
# The beginning of a call in JSON, up to its arguments. A call with another order is parsed when it is whole.
_HEAD = (
    r'\s*[\[,;]?\s*\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?(?:"function"\s*:\s*\{\s*)?(?:"id"\s*:\s*"[^"]*"\s*,\s*)?'
    r'"name"\s*:\s*"(?P<name>[^"\\]+)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)'
)


def _finite(text: str) -> float | None:
    found = float(text)
    return found if math.isfinite(found) else None


_DECODER = json.JSONDecoder(parse_constant=lambda _: None, parse_float=_finite)  # JSON has no NaN: null


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a model makes; `arguments` is JSON."""

    name: str
    arguments: str


class ToolCallParser:
    """Splits a model's text, as it is generated, into plain text and tool calls.

    Arguments are returned as they come. What looks like a call but is not valid, or calls an unknown tool,
    stays text. `is_call` says that the whole text is a call, because a grammar enforces it. The `names` of
    tools may have the schemas of their parameters: arguments that are not JSON are converted by them.
    """

    def __init__(
        self,
        names: Mapping[str, Mapping[str, Any] | None] | Collection[str],
        format: CallFormat,
        *,
        is_call: bool = False,
    ) -> None:
        self._names = names
        self._schemas = names if isinstance(names, Mapping) else {}
        self._types: dict[str, Any] = {}  # schemas of a call's parameters
        self._format = format
        self._tags = format.tags
        self._head = re.compile(_head_pattern(format))
        self._parameter = re.compile(_parameter_pattern(format), re.DOTALL)
        self._held = ""  # text that is not certain yet
        self._state = self._call if is_call else self._text if self._tags else self._bare
        self._depth = 0  # of the braces around the arguments
        self._json = _JsonEnd()
        tag = TAG.search(format.closing)
        self._closing = tag[0] if tag else format.closing.strip()
        self._arguments_begin = "{"  # what stands before the next parameter in XML

    def push(self, text: str) -> list[Part]:
        """The parts that are certain by now."""
        self._held += text
        parts: list[Part] = []
        while (found := self._state()) is not None:  # a state returns None if it needs more text
            parts += found
        return parts

    def finish(self) -> list[Part]:
        """The parts that were held back, at the end of the text."""
        held, self._held = self._held, ""
        if self._state in (self._arguments, self._parameters, self._rest):
            return []
        if self._state == self._after:
            return [Text(held)] if held.strip() else []
        if self._state in (self._call, self._bare):
            calls = self._parse(held)  # a tagged call may lack its closing tag
            if calls:
                return [part for call in calls for part in _parts(call)]
        return [Text(held)] if held else []

    def _text(self) -> list[Part] | None:
        """Plain text, up to a tag."""
        places = [place for tag in self._tags if (place := self._held.find(tag)) >= 0]
        if places:
            self._state = self._call
            return self._take(min(places))
        certain = len(self._held) - partial_tag(self._held, *self._tags)
        return self._take(certain) if certain else None

    def _bare(self) -> list[Part] | None:
        """The beginning of an answer that may be a call without tags."""
        held = self._held.lstrip()
        if not held or (partial_tag(held, *_PREFIXES) == len(held) and held not in _PREFIXES):
            return None
        self._state = self._call if held[0] in "{[" or held.startswith(_PREFIXES) else self._plain
        return []

    def _plain(self) -> list[Part] | None:
        """Text to the end."""
        return self._take(len(self._held)) if self._held else None

    def _call(self) -> list[Part] | None:
        """A call, up to its arguments; or a whole one, if it has another form."""
        found = self._head.match(self._held)
        if found and found["name"] in self._names:
            self._held = self._held[found.end() :]
            self._depth = found[0].count("{")
            self._json = _JsonEnd()
            self._types = _properties(self._schemas.get(found["name"]))
            self._arguments_begin = "{"
            self._state = self._parameters if self._format.style == "xml" else self._arguments
            return [CallBegin(new_call_id(), found["name"])]
        closing = self._format.closing.strip()
        end = self._held.find(closing) if closing else -1
        if end < 0:
            return None
        whole, self._held = self._held[: end + len(closing)], self._held[end + len(closing) :]
        calls = self._parse(whole)
        self._state = self._after if calls else self._text
        return [part for call in calls for part in _parts(call)] if calls else [Text(whole)]

    def _parameters(self) -> list[Part] | None:
        """The arguments of a call in XML, written as JSON: each when it is whole."""
        held, closing = self._held.lstrip(), self._closing
        if held.startswith(closing):
            self._held, self._state = held[len(closing) :], self._after
            return [CallArguments("{}" if self._arguments_begin == "{" else "}")]
        found = self._parameter.match(held)
        if found is None:
            return None
        key, value = found["key"].strip(), found["value"]
        name, value = json.dumps(key, ensure_ascii=False), _typed(value, self._types.get(key))
        text = f"{self._arguments_begin}{name}: {value}"
        self._held, self._arguments_begin = held[found.end() :], ", "
        return [CallArguments(text)]

    def _arguments(self) -> list[Part] | None:
        size = self._json.find(self._held)
        text, self._held = self._held[:size], self._held[size:]
        if self._json.is_over:
            self._json = _JsonEnd(self._depth)
            self._state = self._rest
        return [CallArguments(text)] if text else None

    def _rest(self) -> list[Part] | None:
        """What follows the arguments in the JSON of a call."""
        size = self._json.find(self._held) if self._depth else 0
        self._held = self._held[size:]
        if self._depth and not self._json.is_over:
            return None
        self._state = self._after
        return []

    def _after(self) -> list[Part] | None:
        """Closing tags, then another call or text."""
        held = self._held.lstrip()
        is_json = self._format.style in ("json", "list")
        ends = (*self._format.ends, *(("]", ",", ";") if is_json else ()))
        for end in ends:
            if held.startswith(end):
                self._held = held[len(end) :]
                return []
        if not held or partial_tag(held, *ends, *self._tags) == len(held):
            return None
        if held.startswith(self._tags) or (is_json and held[0] == "{"):
            self._held, self._state = held, self._call
        else:
            self._state = self._text if self._tags else self._plain
        return []

    def _take(self, size: int) -> list[Part]:
        text, self._held = self._held[:size], self._held[size:]
        return [Text(text)] if text else []

    def _parse(self, text: str) -> list[ToolCall]:
        """The calls that make up a text; none if it contains anything else."""
        text = text.strip()
        for opening in (*self._tags, *_PREFIXES):
            text = text.removeprefix(opening).strip()
        for end in self._format.ends:
            text = text.removesuffix(end).strip()
        calls = [self._to_call(item) for item in _json_values(text)]
        return [call for call in calls if call] if calls and all(calls) else []

    def _to_call(self, item: Any) -> ToolCall | None:
        if isinstance(item, dict) and "function" in item:
            item = item["function"]
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(name, str) or name not in self._names:
            return None
        arguments: Any = next((item[key] for key in _ARGUMENTS if key in item), {})
        if isinstance(arguments, str):
            arguments = next(iter(_json_values(arguments)), None)
        if not isinstance(arguments, dict):
            return None
        return ToolCall(name, json.dumps(arguments, ensure_ascii=False))


class HarmonyParser:
    """The answers of gpt-oss: messages of a header, with a channel and perhaps a tool's name, and a body."""

    _ENDS = ("<|end|>", "<|call|>", "<|return|>", "<|start|>")

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._held = ""
        self._kind: str | None = None  # of the body; None: in a header

    def push(self, text: str) -> Iterator[tuple[str, str]]:
        """Pairs of a kind ("thought", "text", "call", "arguments") and a text."""
        self._held += text
        while True:
            if self._kind is None:
                header, found, rest = self._held.partition("<|message|>")
                if not found:
                    return
                self._held = rest
                self._kind = "thought" if "<|channel|>analysis" in header else "text"
                recipient = re.search(r"to=functions\.([\w.-]+)", header)
                if recipient and recipient[1] in self._names:
                    self._kind = "arguments"
                    yield "call", recipient[1]
                continue
            places = [place for end in self._ENDS if (place := self._held.find(end)) >= 0]
            size = min(places) if places else len(self._held) - partial_tag(self._held, *self._ENDS)
            if size:
                yield self._kind, self._held[:size]
            self._held = self._held[size:]
            if not places:
                return
            self._kind = None
            self._held = self._held[self._held.index(">") + 1 :]

    def finish(self) -> str:
        """Text of an answer that has no header."""
        return "" if "<|" in self._held else self._held


class _JsonEnd:
    """Finds the end of a JSON object in pieces of text. `depth`: of the braces that are open before it."""

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth
        self._is_string = self._is_escaped = False
        self.is_over = False

    def find(self, text: str) -> int:
        """The number of characters up to the end; all if it does not come."""
        for place, character in enumerate(text):
            if self._is_escaped:
                self._is_escaped = False
            elif self._is_string:
                self._is_escaped = character == "\\"
                self._is_string = character != '"'
            elif character == '"':
                self._is_string = True
            elif character in "{}":
                self._depth += 1 if character == "{" else -1
                if not self._depth:
                    self.is_over = True
                    return place + 1
        return len(text)


def _head_pattern(format: CallFormat) -> str:
    prefix = "".join(f"(?:{_loose(text)})?" for text in (*_PREFIXES, format.section, format.opening) if text)
    if format.style == "named":
        return rf"{prefix}(?P<name>[\w.-]+){_loose(format.separator)}(?=\{{)"
    if format.style == "xml":
        last = format.opening.rfind("<")
        around, opening = _loose(format.section + format.opening[:last]), re.escape(format.opening[last:])
        prefix = rf"(?:{around})?\s*(?:{opening})?"
        return rf"{prefix}(?P<name>[\w.-]+){_loose(format.separator)}"
    return prefix + _HEAD


def _parameter_pattern(format: CallFormat) -> str:
    """A parameter of a call in XML. One line break on each side of the value is not part of it."""
    key_end, value_end = (
        r"\s*".join(map(re.escape, text.split())) for text in (format.key_end, format.value_end)
    )
    return rf"{re.escape(format.parameter)}(?P<key>.+?){key_end}\n?(?P<value>.*?)\n?{value_end}"


def _properties(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    found = (schema or {}).get("properties")
    return found if isinstance(found, dict) else {}


def _typed(value: str, schema: object) -> str:
    """The JSON of a parameter's value, which is text unless its schema is of another type."""
    if isinstance(schema, dict) and not is_text(schema):
        with suppress(ValueError, RecursionError):
            return json.dumps(_DECODER.decode(value), ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False)


def _loose(text: str) -> str:
    """A pattern of a text with any white space."""
    return r"\s*" + r"\s*".join(re.escape(word) for word in text.split()) + r"\s*"


def _parts(call: ToolCall) -> tuple[Part, Part]:
    return CallBegin(new_call_id(), call.name), CallArguments(call.arguments)


def new_call_id() -> str:
    """Nine letters and digits, because the templates of Mistral's models ask for that."""
    return uuid.uuid4().hex[:9]


def parsed_arguments(text: str) -> dict[str, Any]:
    """The arguments of a call as an object; empty if the answer was cut before their end."""
    try:
        found = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _json_values(text: str) -> Sequence[object]:
    """The JSON values of a text: a list's items, or values separated by ; and space. Empty if it is not
    JSON."""
    found, at = list[object](), 0
    try:
        while at < len(text):
            value, at = _DECODER.raw_decode(text, at)
            found += value if isinstance(value, list) else [value]
            while at < len(text) and text[at] in "; \r\n\t":
                at += 1
    except (ValueError, RecursionError):
        return []
    return found
