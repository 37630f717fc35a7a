"""Tool calls: the grammar that makes a model call a tool, and the calls that a model's text contains.

Two formats cover most models: JSON between two tags per call (Hermes, Qwen), and an answer that consists of
such JSON only (Llama 3). The tags appear in the chat template.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolCallFormat:
    """The tags around a call (empty: the answer is the call), and the key of its arguments."""

    opening: str = ""
    closing: str = ""
    arguments: str = "parameters"


TAGGED = ToolCallFormat("<tool_call>", "</tool_call>", "arguments")
BARE = ToolCallFormat()
_ARGUMENTS = ("arguments", "parameters")
_PREFIXES = ("<|python_tag|>", "[TOOL_CALLS]")  # some models write these before bare calls


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


def tool_call_format(template: str | None) -> ToolCallFormat | None:
    """The format that a chat template uses; None if it does not support tools."""
    if template is None or "tools" not in template:
        return None
    return TAGGED if TAGGED.opening in template else BARE


def tool_call_schema(tools: Mapping[str, Mapping[str, Any] | None], format: ToolCallFormat) -> dict[str, Any]:
    """The JSON schema of a call; `tools` maps each name to the schema of its parameters."""

    def one(name: str, parameters: Mapping[str, Any] | None) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {
                "name": {"const": name},
                format.arguments: dict(parameters or {"type": "object"}),
            },
            "required": ["name", format.arguments],
            "additionalProperties": False,
        }

    calls = [one(name, parameters) for name, parameters in tools.items()]
    return calls[0] if len(calls) == 1 else {"anyOf": calls}


class ToolCallParser:
    """Splits a model's text, as it is generated, into plain text and tool calls.

    A call is returned once it is complete. What looks like a call but is not valid, or calls an unknown tool,
    stays text. `is_call` says that the whole text is a call, because a grammar enforces it.
    """

    def __init__(self, names: Collection[str], format: ToolCallFormat, *, is_call: bool = False) -> None:
        self._names = names
        self._format = BARE if is_call else format
        self._held = ""  # text that is, or may become, a call
        self._is_open = is_call
        self._has_text = False

    def push(self, text: str) -> tuple[str, list[ToolCall]]:
        """The plain text that is certain by now, and the calls that this text completes."""
        if not self._format.opening:
            return self._push_bare(text), []
        plain, calls = "", list[ToolCall]()
        self._held += text
        while True:
            tag = self._format.closing if self._is_open else self._format.opening
            before, found, after = self._held.partition(tag)
            if not found:
                break
            self._held = after
            if not self._is_open:
                plain += before
            elif inside := self._parse(before):
                calls += inside
            else:
                plain += f"{self._format.opening}{before}{tag}"
            self._is_open = not self._is_open
        if not self._is_open:
            certain = len(self._held) - _partial_tag(self._held, self._format.opening)
            plain, self._held = plain + self._held[:certain], self._held[certain:]
        return plain, calls

    def finish(self) -> tuple[str, list[ToolCall]]:
        """The text and calls that were held back, at the end of the text."""
        held, self._held = self._held, ""
        if self._format.opening and not self._is_open:
            return held, []
        calls = self._parse(held)  # a tagged call may lack its closing tag
        return ("", calls) if calls else (self._format.opening + held, [])

    def _push_bare(self, text: str) -> str:
        """Text that begins like JSON is held to the end; any other text passes."""
        if self._has_text:
            return text
        self._held += text
        held = self._held.lstrip()
        has_prefix = any(prefix.startswith(held[: len(prefix)]) for prefix in _PREFIXES)
        if self._is_open or has_prefix or held[0] in "{[":
            return ""
        self._has_text = True
        held, self._held = self._held, ""
        return held

    def _parse(self, text: str) -> list[ToolCall]:
        """The calls that make up a text; none if it contains anything else."""
        text = text.strip()
        for prefix in _PREFIXES:
            text = text.removeprefix(prefix).strip()
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
        return ToolCall(f"call_{uuid.uuid4().hex[:24]}", name, json.dumps(arguments, ensure_ascii=False))


def _partial_tag(text: str, tag: str) -> int:
    """The length of a text's end that may be the beginning of a tag."""
    sizes = range(min(len(text), len(tag) - 1), 0, -1)
    return next((size for size in sizes if tag.startswith(text[-size:])), 0)


def _json_values(text: str) -> Sequence[object]:
    """The JSON values of a text: a list's items, or values separated by ; and space. Empty if it is not
    JSON."""
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
