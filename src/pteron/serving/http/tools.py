"""Tools: how a model is made to call them, and its calls out of its text.

Two forms cover most models: each call as JSON between two tags, as Hermes and Qwen write it, and an answer
that is such JSON and nothing else, as Llama 3 does. The chat template tells which: it names the tags.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Form:
    """How calls stand in a text: between tags, or (without tags) as all of it; and what holds arguments."""

    opening: str = ""
    closing: str = ""
    arguments: str = "parameters"


TAGGED = Form("<tool_call>", "</tool_call>", "arguments")
BARE = Form()
_ARGUMENTS = ("arguments", "parameters")
_MARKS = ("<|python_tag|>", "[TOOL_CALLS]")  # before bare calls, where these are text


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a model makes; `arguments` is JSON."""

    id: str
    name: str
    arguments: str

    @property
    def json(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


def form_of(template: str | None) -> Form | None:
    """The form in which a chat template has tools called; None where it has no tools."""
    if template is None or "tools" not in template:
        return None
    return TAGGED if TAGGED.opening in template else BARE


def call_schema(tools: Mapping[str, Mapping[str, Any] | None], form: Form) -> dict[str, Any]:
    """What a call of one of some tools is, as a JSON schema; each has a schema of its parameters."""

    def one(name: str, parameters: Mapping[str, Any] | None) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {"name": {"const": name}, form.arguments: dict(parameters or {"type": "object"})},
            "required": ["name", form.arguments],
            "additionalProperties": False,
        }

    calls = [one(name, parameters) for name, parameters in tools.items()]
    return calls[0] if len(calls) == 1 else {"anyOf": calls}


class ToolReader:
    """Divides a model's text, as it comes, into what it says and the calls it makes.

    A call comes out whole, once its end is there. What looks like one and is none stays text, as does a call
    of a tool that nobody offered. `is_call` says that all of the text is a call: it was made to be.
    """

    def __init__(self, names: Collection[str], form: Form, *, is_call: bool = False) -> None:
        self._names = names
        self._form = BARE if is_call else form
        self._held = ""  # of a call that has begun, or of a text that may be one
        self._is_open = is_call
        self._has_text = False

    def push(self, text: str) -> tuple[str, list[ToolCall]]:
        """What is certain to be said, and the calls that end with this text."""
        if not self._form.opening:
            return self._push_bare(text), []
        said, calls = "", list[ToolCall]()
        self._held += text
        while True:
            tag = self._form.closing if self._is_open else self._form.opening
            before, found, after = self._held.partition(tag)
            if not found:
                break
            self._held = after
            if not self._is_open:
                said += before
            elif inside := self._calls(before):
                calls += inside
            else:
                said += f"{self._form.opening}{before}{tag}"
            self._is_open = not self._is_open
        if not self._is_open:
            keep = _begun(self._held, self._form.opening)
            certain = len(self._held) - keep
            said, self._held = said + self._held[:certain], self._held[certain:]
        return said, calls

    def finish(self) -> tuple[str, list[ToolCall]]:
        """What was held back, once nothing more will come."""
        held, self._held = self._held, ""
        if self._form.opening and not self._is_open:
            return held, []
        calls = self._calls(held)  # between tags: one that lacks the last
        return ("", calls) if calls else (self._form.opening + held, [])

    def _push_bare(self, text: str) -> str:
        """Text that begins as JSON does is held to its end, any other passes through."""
        if self._has_text:
            return text
        self._held += text
        held = self._held.lstrip()
        marked = any(mark.startswith(held[: len(mark)]) for mark in _MARKS)
        if self._is_open or marked or held[0] in "{[":
            return ""
        self._has_text = True
        held, self._held = self._held, ""
        return held

    def _calls(self, text: str) -> list[ToolCall]:
        """The calls that a text is; none where it is anything else."""
        text = text.strip()
        for mark in _MARKS:
            text = text.removeprefix(mark).strip()
        found = _objects(text)
        calls = [self._call(item) for item in found]
        return [call for call in calls if call] if calls and all(calls) else []

    def _call(self, item: Any) -> ToolCall | None:
        if isinstance(item, dict) and "function" in item:
            item = item["function"]
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(name, str) or name not in self._names:
            return None
        arguments: Any = next((item[key] for key in _ARGUMENTS if key in item), {})
        if isinstance(arguments, str):
            arguments = next(iter(_objects(arguments)), None)
        if not isinstance(arguments, dict):
            return None
        return ToolCall(f"call_{uuid.uuid4().hex[:24]}", name, json.dumps(arguments, ensure_ascii=False))


def _begun(text: str, tag: str) -> int:
    """How much of a text's end may be the beginning of a tag."""
    sizes = range(min(len(text), len(tag) - 1), 0, -1)
    return next((size for size in sizes if tag.startswith(text[-size:])), 0)


def _objects(text: str) -> Sequence[object]:
    """What a text holds as JSON: a list's items, or values with nothing but ; and space between them."""
    decoder, found, at = json.JSONDecoder(), [], 0
    try:
        while at < len(text):
            value, at = decoder.raw_decode(text, at)
            found += value if isinstance(value, list) else [value]
            while at < len(text) and text[at] in "; \r\n\t":
                at += 1
    except (ValueError, RecursionError):
        return []
    return found
