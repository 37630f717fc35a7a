"""The configuration files in a model's folder -> special tokens, chat template, sampling, pooling.

pteron.json, generation_config.json, chat_template.json (of models that read images), tokenizer_config.json,
special_tokens_map.json and config.json may name the BOS and EOS tokens; if two files disagree, the earlier in
this list wins, unless the tokenizer has none of its tokens. The chat template is chosen as in Hugging Face's
transformers: the file chat_template.jinja wins over `chat_template` in any of these files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from reprlib import repr as shortened
from typing import Any, Literal, TypeAlias, get_args

from pteron.errors import FormatError, InputError, PteronError
from pteron.format.foreign import HEAD_BYTES, describe_placeholder
from pteron.format.source import read_file

Token: TypeAlias = int | str  # an id or a text

Pooling = Literal["last", "mean"]  # how hidden states become one vector

COMPANION_BYTES_MAX = 1 << 28  # of a file beside a program; the largest vocabularies take an eighth of it
MANIFEST, TEMPLATE = "pteron.json", "chat_template.jinja"
GENERATION, INDEX = "generation_config.json", "model.safetensors.index.json"
CONFIGURATIONS = (
    *(MANIFEST, GENERATION, "chat_template.json", "tokenizer_config.json", "special_tokens_map.json"),
    "config.json",
)

# In order of preference: the first describes the tokenizer most completely.
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "*.tiktoken", "tokenizer.bin")


@dataclass
class TokenizerConfig:
    bos: dict[str, tuple[Token, ...]] = field(default_factory=dict)  # by the file that names them
    eos: dict[str, tuple[Token, ...]] = field(default_factory=dict)
    adds_bos: bool | None = None
    chat_template: str | None = None


class ModelFolder:
    """The configuration files of a model, each read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._contents: dict[str, dict[str, Any]] = {}

    @classmethod
    def of(cls, path: Path) -> ModelFolder:
        """The folder that a model is, or that its file is in."""
        return cls(path if path.is_dir() else path.parent)

    def read(self, name: str) -> dict[str, Any]:
        """The object in a file; empty if the file does not exist."""
        if name not in self._contents:
            self._contents[name] = read_json(self.path / name)
        return self._contents[name]

    @property
    def manifest(self) -> dict[str, Any]:
        return self.read(MANIFEST)

    @property
    def program(self) -> Path:
        """The file that the manifest names, or model.pte."""
        return self.path / program_name(self.manifest)

    @property
    def pooling(self) -> Pooling | None:
        """`pooling` of the manifest, for programs that return hidden states."""
        value = self.manifest.get("pooling")
        for known in get_args(Pooling):
            if value == known:
                return known  # type: ignore[no-any-return]  # one of them
        if value is not None:
            raise FormatError(f'{MANIFEST}: pooling must be "last" or "mean", not {shortened(value)}')
        return None

    @property
    def tokenizer(self) -> Path:
        """The tokenizer's file: the one that the manifest names, or the first with a usual name."""
        named = _file_name(self.manifest, "tokenizer")
        if named is not None and (self.path / named).exists():
            return self.path / named
        for pattern in () if named else TOKENIZERS:
            for file in sorted(self.path.glob(pattern)):
                return file
        raise InputError(
            f"{self.path} holds no tokenizer, as language models have; looked for "
            f"{named or ', '.join(TOKENIZERS)}"
        )

    @property
    def tokenizer_config(self) -> TokenizerConfig:
        config = TokenizerConfig()
        if is_there(self.path / TEMPLATE):
            config.chat_template = read_utf8(self.path / TEMPLATE)
        for name in CONFIGURATIONS:
            content = self.read(name)
            config.bos[name], config.eos[name] = (_tokens(content, kind, name) for kind in ("bos", "eos"))
            if config.adds_bos is None:
                config.adds_bos = _adds_bos(content, name)
            if config.chat_template is None:
                config.chat_template = _template(content.get("chat_template"), name)
        return config


def program_name(manifest: dict[str, Any]) -> str:
    return _file_name(manifest, "model") or "model.pte"


def shard_names(folder: Path) -> list[str]:
    """The files of weights that a checkpoint's index lists; none without an index."""
    listed = read_json(folder / INDEX).get("weight_map") or {}
    names = set(listed.values()) if isinstance(listed, dict) and _are_strings(listed.values()) else None
    if names is None:
        raise FormatError(f"{INDEX}: weight_map must be an object of file names, not {shortened(listed)}")
    return sorted(Path(name).name for name in names)


def _are_strings(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def is_there(file: Path) -> bool:
    """Whether a file exists. A link to one that does not, as in a cache from which files were removed, is an
    error: the model has this file."""
    if file.exists():
        return True
    if file.is_symlink():
        raise FormatError(f"{file} is a link to a file that does not exist; download the model again")
    return False


def read_utf8(file: Path) -> str:
    try:
        return read_file(file, COMPANION_BYTES_MAX).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"{file.name} is not UTF-8 text: {error}") from error


def read_json(file: Path) -> dict[str, Any]:
    """The object in a file; empty if the file does not exist."""
    return parse_json(read_utf8(file), file.name) if is_there(file) else {}


def parse_json(text: str, name: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        placeholder = describe_placeholder(text[:HEAD_BYTES].encode())
        if placeholder:
            raise FormatError(f"{name} is {placeholder}") from None
        raise FormatError(f"{name} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise FormatError(f"{name} does not hold a JSON object")
    return content


@contextmanager
def as_format_error(what: str) -> Iterator[None]:
    """Turn any error of a library into a FormatError that begins with `what`. A Rust library's panic is a
    BaseException, not an Exception."""
    try:
        yield
    except PteronError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__module__ != "pyo3_runtime":
            raise
        raise FormatError(f"{what}: {error or type(error).__name__}") from error


def _tokens(content: dict[str, Any], kind: str, name: str) -> tuple[Token, ...]:
    """A token is an id, a text, or an object with a text; several tokens may end a text."""
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
        raise FormatError(f"{where} must be a token's id or its text, not {shortened(item)}")
    return token


def _adds_bos(content: dict[str, Any], name: str) -> bool | None:
    value = content.get("add_bos_token")
    if not isinstance(value, (bool, type(None))):
        raise FormatError(f"{name}: add_bos_token must be true or false, not {shortened(value)}")
    return value


def _template(value: Any, name: str) -> str | None:
    """A template, or a list of named templates."""
    is_list = isinstance(value, list) and all(isinstance(item, dict) for item in value)
    named = {str(item.get("name")): item.get("template") for item in value} if is_list else {"default": value}
    for template in named.values():
        if not isinstance(template, (str, type(None))):
            raise FormatError(f"{name}: chat_template must be a string, not {shortened(template)}")
    return choose_template(named)


def choose_template(named: dict[str, str | None]) -> str | None:
    """One template of several with names: "default", and "tool_use" for conversations with tools."""
    default, tool_use = (named.get(which) for which in ("default", "tool_use"))
    if default is None or tool_use is None:
        return default
    # The + signs keep the white space at the edges; Jinja drops a template's last line end.
    with_tools, without = (text.removesuffix("\n") for text in (tool_use, default))
    return f"{{% if tools +%}}{with_tools}{{%+ else +%}}{without}{{%+ endif %}}"


def _file_name(content: dict[str, Any], key: str) -> str | None:
    """The name of a file in the manifest's own folder; a path to elsewhere is an error."""
    name = content.get(key)
    if name is None:
        return None
    if not isinstance(name, str) or not name or name in (".", "..") or set(name) & set("/\\:\0"):
        raise FormatError(
            f"{MANIFEST}: {key} must be the name of a file in its folder, not {shortened(name)}"
        )
    return name
