"""Hugging Face's tokenizer.json, encoded by their `tokenizers` library.

Decoding is done here, from the bytes of each token. Two conventions cover language models: a byte-level
alphabet, or SentencePiece's pieces, with ▁ for a space and <0x0A> for a single byte.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pteron.errors import FormatError, UnsupportedError
from pteron.extras import need
from pteron.gpu.fork import new_lock
from pteron.llm.foreign import naming
from pteron.llm.model_files import parse_json, read_utf8
from pteron.llm.reentrancy import non_reentrant
from pteron.llm.tokenizer import Tokenizer
from pteron.llm.tokenizers import bytelevel
from pteron.llm.tokenizers.growth import check_growth, check_model

BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class HuggingFaceTokenizer(Tokenizer):
    def __init__(self, file: Path) -> None:
        library = need("tokenizers", f"reading {file.name}")
        self._lock = new_lock()
        content = read_utf8(file)
        description = parse_json(content, file.name)
        check_growth(description, file.name)
        with naming(f"{file.name} is not a tokenizer that `tokenizers` reads"):
            self._tokenizer = library.Tokenizer.from_str(content)
            # Language models are not given texts of one length; a file may ask for gigabytes of it.
            self._tokenizer.no_padding()
            self._tokenizer.no_truncation()
            if getattr(self._tokenizer.model, "dropout", None):  # for training: it merges at random
                self._tokenizer.model.dropout = None
            self._examine(description, file)

    def _examine(self, description: dict[str, Any], file: Path) -> None:
        """What decoding needs to know."""
        steps = list(_steps(description.get("decoder")))
        self._byte_level = any(step["type"] == "ByteLevel" for step in steps)
        if not self._byte_level and not any(_opens_spaces(step) for step in steps):
            raise UnsupportedError(f"{file.name}: a decoder that language models do not use: {steps}")
        check_model(self._tokenizer, file.name)
        self.leading_space = any(_drops_space(step) for step in steps)
        self.vocab_size = 1 + max(self._tokenizer.get_vocab().values())
        added = description.get("added_tokens") or []
        self._added = {token["id"]: b"" if token["special"] else token["content"].encode() for token in added}
        # What the library puts before a text by itself opens it.
        opened, plain = (self._tokenizer.encode("a", add_special_tokens=add).ids for add in (True, False))
        if opened[:1] != plain[:1]:
            self.bos_id, self.adds_bos = opened[0], True
        if opened and max(opened) >= self.vocab_size:
            raise FormatError(f"{file.name} opens texts with token {max(opened)}, of {self.vocab_size}")

    def token_bytes(self, token: int) -> bytes:
        added = self._added.get(token)
        if added is not None:
            return added
        text = self.token_text(token)
        if not text:  # a model's table may be larger than its vocabulary
            return b""
        if self._byte_level:
            return bytelevel.to_bytes(text)
        single = BYTE_TOKEN.fullmatch(text)
        return bytes.fromhex(single[1]) if single else text.replace("▁", " ").encode()

    def token_id(self, text: str) -> int | None:
        found: int | None = self._tokenizer.token_to_id(text)
        return found

    def token_text(self, token: int) -> str:
        return (self._tokenizer.id_to_token(token) or "") if 0 <= token < self.vocab_size else ""

    def encode_marked(self, text: str) -> list[int]:
        plain = self.encode(text)
        marked = self._ids(text, special=False, marked=True)
        return marked if len(marked) > len(plain) else super().encode_marked(text)

    def _encode(self, text: str, special: bool) -> list[int]:
        return self._ids(text, special=special)

    def _ids(self, text: str, *, special: bool, marked: bool = False) -> list[int]:
        with non_reentrant(self._lock):  # one setting for all threads
            self._tokenizer.encode_special_tokens = not special
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=marked).ids
        return ids


def _steps(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if decoder is None:
        return []
    if decoder["type"] != "Sequence":
        return [decoder]
    return [step for inner in decoder["decoders"] for step in _steps(inner)]


def _opens_spaces(step: dict[str, Any]) -> bool:
    """Whether a step turns ▁ into a space."""
    return step["type"] == "Metaspace" or (step["type"] == "Replace" and step.get("content") == " ")


def _drops_space(step: dict[str, Any]) -> bool:
    if step["type"] == "Metaspace":
        never = step.get("prepend_scheme") == "never" or step.get("add_prefix_space") is False
        return not never
    return step["type"] == "Strip" and step.get("content") == " " and step.get("start", 0) > 0
