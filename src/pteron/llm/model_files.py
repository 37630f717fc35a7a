"""What the files beside a tokenizer say: the tokens that begin and end a text, and the chat template.

In: a folder with any of pteron.json, generation_config.json, tokenizer_config.json, special_tokens_map.json,
config.json, chat_template.jinja. Out: Settings. Where two files disagree, the earlier in that list holds: it
is closer to how the model is meant to be used.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from pteron.errors import FormatError
from pteron.format.source import read_file

Token: TypeAlias = int | str  # by id or by text

Pooling = Literal["last", "mean"]  # which of a text's hidden states stand for it

COMPANION_BYTES_MAX = 1 << 28  # of a file beside a program: the largest vocabularies take an eighth
MANIFEST, TEMPLATE = "pteron.json", "chat_template.jinja"
GENERATION = "generation_config.json"
CONFIGURATIONS = (
    MANIFEST,
    GENERATION,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "config.json",
)

DRAWING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


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
            settings.bos = next(iter(_tokens(content, "bos", name)), None)
        settings.eos = settings.eos or _tokens(content, "eos", name)
        if settings.adds_bos is None:
            settings.adds_bos = _adds_bos(content, name)
        if settings.chat_template is None:
            settings.chat_template = _template(content.get("chat_template"), name)
    settings.tokenizer = _file_name(read_json(folder / MANIFEST), "tokenizer")
    template = folder / TEMPLATE
    if is_there(template):
        settings.chat_template = read_utf8(template)
    return settings


def read_sampling(folder: Path) -> dict[str, Any]:
    """What a model's authors say of how its tokens are drawn, as arguments of `Sampling`. Where they do not
    ask for drawing, only the repetition penalty counts."""
    content = read_json(folder / GENERATION)
    counting = DRAWING if content.get("do_sample") is True else DRAWING[-1:]
    return {name: content[name] for name in counting if content.get(name) is not None}


def read_pooling(folder: Path) -> Pooling | None:
    """Which hidden states stand for a text, where the folder's program gives any: its `pooling`."""
    value = read_json(folder / MANIFEST).get("pooling")
    for known in get_args(Pooling):
        if value == known:
            return known  # type: ignore[no-any-return]  # one of them
    if value is not None:
        raise FormatError(f'{MANIFEST}: pooling is neither "last" nor "mean": {_shown(value)}')
    return None


def program_file(folder: Path) -> Path:
    """The program in a folder: the one that its manifest names, or model.pte."""
    return folder / (_file_name(read_json(folder / MANIFEST), "model") or "model.pte")


def is_there(file: Path) -> bool:
    """Whether a folder has such a file. A name that no system takes, or a folder of somebody else's, is an
    error."""
    try:
        return file.exists()
    except OSError as error:
        raise FormatError(f"{_shown(file.name)} cannot be looked at: {error.strerror}") from error


def read_utf8(file: Path) -> str:
    """The text in a file, which is UTF-8."""
    try:
        return read_file(file, COMPANION_BYTES_MAX).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"{file.name} is not UTF-8 text: {error}") from error


def read_json(file: Path) -> dict[str, Any]:
    """The object in a file; empty where there is no file."""
    return parse_json(read_utf8(file), file.name) if is_there(file) else {}


def parse_json(text: str, name: str) -> dict[str, Any]:
    """The object that a text is. No key stands twice in one: others might take the other for good."""
    try:
        content = json.loads(text, object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{name} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise FormatError(f"{name} does not hold a JSON object")
    return content


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return content


def _tokens(content: dict[str, Any], kind: str, name: str) -> tuple[Token, ...]:
    """A token is given by id, by text, or as an object with its text; a model may end on several."""
    for key in (f"{kind}_ids", f"{kind}_id", f"{kind}_token_id", f"{kind}_token"):
        value = content.get(key)
        if value is None:
            continue
        values = value if isinstance(value, list) else [value]
        return tuple(_token(item, f"{name}: {key}") for item in values)
    return ()


def _token(item: Any, where: str) -> Token:
    token = item.get("content") if isinstance(item, dict) else item
    if not isinstance(token, (int, str)) or isinstance(token, bool):
        raise FormatError(f"{where} is neither a token's id nor its text: {_shown(item)}")
    return token


def _adds_bos(content: dict[str, Any], name: str) -> bool | None:
    value = content.get("add_bos_token")
    if not isinstance(value, (bool, type(None))):
        raise FormatError(f"{name}: add_bos_token is neither true nor false: {_shown(value)}")
    return value


def _template(value: Any, name: str) -> str | None:
    """A template, or the one called `default` of a list of named ones."""
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        value = next((item.get("template") for item in value if item.get("name") == "default"), None)
    if not isinstance(value, (str, type(None))):
        raise FormatError(f"{name}: chat_template is no text: {_shown(value)}")
    return value


def _file_name(content: dict[str, Any], key: str) -> str | None:
    """A file in the manifest's own folder: a name that leads elsewhere is refused."""
    name = content.get(key)
    if name is None:
        return None
    if not isinstance(name, str) or not name or name in (".", "..") or set(name) & set("/\\:\0"):
        raise FormatError(f"{MANIFEST}: {key} is not the name of a file beside it: {_shown(name)}")
    return name


def _shown(value: object) -> str:
    """A value in a message: its beginning, where it is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]} …"
