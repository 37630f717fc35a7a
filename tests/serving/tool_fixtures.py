"""Chat templates with tools, and the calls that a client reads from a stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pteron.llm.names.models import BUNDLED

HERMES = "{% if tools %}<tool_call>{…}</tool_call>{{ tools }}{% endif %}{{ messages }}"
LLAMA = '{% if tools %}Respond in the format {"name": ..., "parameters": ...}{% endif %}'
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "now"}},
]
MESSAGES: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
TEMPLATES = pytest.fixture(scope="module", params=[HERMES, LLAMA], ids=["tags", "bare"])


def with_template(folder: Path, template: str) -> Path:
    """The folder of a model that has a chat template."""
    for file in BUNDLED["stories15m"].iterdir():
        (folder / file.name).symlink_to(file)
    (folder / "chat_template.jinja").write_text(template, "utf-8")
    return folder


def together(deltas: list[Any]) -> tuple[str, list[tuple[str, str]]]:
    """What a client makes of deltas: the text, and the calls with their arguments."""
    calls: dict[int, list[str]] = {}
    for delta in deltas:
        for part in delta.tool_calls or ():
            name, arguments = calls.setdefault(part.index, ["", ""])
            calls[part.index] = [name + (part.function.name or ""), arguments + part.function.arguments]
    text = "".join(delta.content or "" for delta in deltas)
    return text, [(name, arguments) for name, arguments in calls.values()]
