"""What the files beside a tokenizer say: the tokens that begin and end a text, and the chat template.

In: a folder with any of pteron.json, generation_config.json, tokenizer_config.json, special_tokens_map.json,
config.json, chat_template.jinja. Out: Settings. Where two files disagree, the earlier in that list holds: it
is closer to how the model is meant to be used.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from pteron.errors import FormatError

Token: TypeAlias = int | str  # by id or by text

CONFIGURATIONS = (
    "pteron.json",
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "config.json",
)


@dataclass
class Settings:
    bos: Token | None = None
    eos: tuple[Token, ...] = ()
    adds_bos: bool | None = None
    chat_template: str | None = None
    tokenizer: str | None = None  # the tokenizer's file name


def read_settings(folder: Path) -> Settings:
    settings = Settings()
    for name in CONFIGURATIONS:
        content = read_json(folder / name)
        if settings.bos is None:
            settings.bos = next(iter(_tokens(content, "bos")), None)
        settings.eos = settings.eos or _tokens(content, "eos")
        if settings.adds_bos is None:
            settings.adds_bos = content.get("add_bos_token")
        if settings.chat_template is None:
            settings.chat_template = _template(content.get("chat_template"))
    settings.tokenizer = read_json(folder / "pteron.json").get("tokenizer")
    template = folder / "chat_template.jinja"
    if template.exists():
        settings.chat_template = read_utf8(template)
    return settings


def read_utf8(file: Path) -> str:
    """The text in a file, which is UTF-8."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"{file.name} is not UTF-8 text: {error}") from error


def read_json(file: Path) -> dict[str, Any]:
    """The object in a file; empty where there is no file."""
    if not file.exists():
        return {}
    try:
        content = json.loads(read_utf8(file))
    except ValueError as error:
        raise FormatError(f"{file.name} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise FormatError(f"{file.name} does not hold a JSON object")
    return content


def _tokens(content: dict[str, Any], kind: str) -> tuple[Token, ...]:
    """A token is given by id, by text, or as an object with its text; a model may end on several."""
    for key in (f"{kind}_ids", f"{kind}_id", f"{kind}_token_id", f"{kind}_token"):
        value = content.get(key)
        if value is None:
            continue
        values = value if isinstance(value, list) else [value]
        return tuple(item["content"] if isinstance(item, dict) else item for item in values)
    return ()


def _template(value: Any) -> str | None:
    """A template, or the one called `default` of a list of named ones."""
    if isinstance(value, list):
        named = {item.get("name"): item.get("template") for item in value}
        value = named.get("default")
    return value if isinstance(value, str) else None
