"""Hugging Face's tokenizer.json, encoded by their `tokenizers` library.

Decoding is done here, from the bytes of each token. Vocabularies use one of three conventions: a byte-level
alphabet; SentencePiece's pieces, with ▁ for a space and <0x0A> for a single byte; or BERT's pieces of words,
with ## before those that continue one.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from pteron.errors import FormatError, UnsupportedError
from pteron.extras import need
from pteron.gpu.fork import new_lock
from pteron.llm.tokenizers.tokenizer import Tokenizer
from pteron.llm.tokenizers.word_rules import WORD_RULES
from pteron.names.model_files import as_format_error, read_utf8

ENCODE_SECONDS = 10.0  # of a text, by a pattern that is not one of WORD_RULES
BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
# GPT-2's alphabet of byte-level vocabularies: bytes that are printable in Latin-1 map to themselves, the
# others in order to U+0100 and up.
PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
HIDDEN = [byte for byte in range(256) if byte not in PRINTABLE]
BYTE_OF = {chr(byte): byte for byte in PRINTABLE} | {chr(0x100 + i): byte for i, byte in enumerate(HIDDEN)}


def load_tokenizer_json(file: Path) -> Tokenizer:
    library = need("tokenizers", f"reading {file.name}")
    content = read_utf8(file)
    with as_format_error(f"{file.name} is not a tokenizer that `tokenizers` reads"):
        return HuggingFaceTokenizer(library.Tokenizer.from_str(content), file.name)


class HuggingFaceTokenizer(Tokenizer):
    """`tokenizer`: a `tokenizers.Tokenizer`, which this object owns; `name` of its file, for messages."""

    def __init__(self, tokenizer: Any, name: str) -> None:
        self.name = name
        self._lock = new_lock()
        self._tokenizer = tokenizer
        self._is_bounded = has_unknown_pattern(tokenizer)
        self._one_thread = threading.Semaphore(1)  # which encodes, if it is bounded
        # These settings are for training: padding, truncation, random merges.
        tokenizer.no_padding()
        tokenizer.no_truncation()
        if getattr(tokenizer.model, "dropout", None):
            tokenizer.model.dropout = None
        steps = list(_steps(tokenizer.decoder and json.loads(tokenizer.decoder.__getstate__())))
        self._byte_level = any(step["type"] == "ByteLevel" for step in steps)
        self._word_pieces = any(step["type"] == "WordPiece" for step in steps)
        if not (self._byte_level or self._word_pieces or any(_decodes_spaces(step) for step in steps)):
            known = "ByteLevel, Metaspace and WordPiece"
            raise UnsupportedError(f"{name}: unknown decoder {steps}; known are {known}")
        self.leading_space = self._word_pieces or any(_drops_space(step) for step in steps)
        self.vocab_size = 1 + max(tokenizer.get_vocab().values())
        added = tokenizer.get_added_tokens_decoder().items()
        self._added = {id: b"" if token.special else self._added_bytes(token.content) for id, token in added}
        # The first of the special tokens that the library puts before a text is the BOS token.
        opened, plain = (tokenizer.encode("a", add_special_tokens=add).ids for add in (True, False))
        if opened[:1] != plain[:1]:
            self.bos_id, self.adds_bos = opened[0], True
            self.prefix_ids = tuple(opened[: max(1, _start_of(plain, opened))])
        if opened and max(opened) >= self.vocab_size:
            raise FormatError(f"{name} puts token {max(opened)} into texts, of only {self.vocab_size}")

    def _added_bytes(self, text: str) -> bytes:
        """Of a token that is text, such as <think>, or ▁▁ in a vocabulary of pieces."""
        return (text if self._byte_level else text.replace("▁", " ")).encode()

    def token_bytes(self, token: int) -> bytes:
        added = self._added.get(token)
        if added is not None:
            return added
        text = self.token_text(token)
        if not text:  # the model may have more rows than the vocabulary has tokens
            return b""
        if self._byte_level:
            return byte_level_bytes(text)
        if self._word_pieces:
            return (text.removeprefix("##") if text.startswith("##") else f" {text}").encode()
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
        """The ids of a text. An unknown pattern may take hours, and the library cannot be stopped: it runs in
        a thread, and callers wait ENCODE_SECONDS at most."""
        if not self._is_bounded:
            return self._ids_now(text, special, marked)
        future: Future[list[int]] = Future()

        def run() -> None:
            try:
                future.set_result(self._ids_now(text, special, marked))
            except BaseException as error:
                future.set_exception(error)
            finally:
                self._one_thread.release()

        try:
            if not self._one_thread.acquire(timeout=ENCODE_SECONDS):
                raise TimeoutError
            threading.Thread(target=run, name="pteron-tokenizer", daemon=True).start()
            return future.result(ENCODE_SECONDS)
        except TimeoutError:
            raise FormatError(
                f"{self.name} takes more than {ENCODE_SECONDS:g} seconds for this text: its pattern that "
                "splits words backtracks; use the tokenizer file of the model's authors"
            ) from None

    def _ids_now(self, text: str, special: bool, marked: bool) -> list[int]:
        with self._lock:  # a setting of the tokenizer, not of the call
            self._tokenizer.encode_special_tokens = not special
            if self._is_bounded:  # this call releases the GIL, so that the time can be watched
                (found,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=marked)
            else:
                found = self._tokenizer.encode(text, add_special_tokens=marked)
        ids: list[int] = found.ids
        return ids


def has_unknown_pattern(tokenizer: Any) -> bool:
    """Whether a `tokenizers.Tokenizer` splits or changes texts by a pattern that may backtrack."""
    known = {pattern for rule in WORD_RULES.values() for pattern in rule.patterns}
    steps = [step for step in (tokenizer.normalizer, tokenizer.pre_tokenizer) if step is not None]
    return any(not known.issuperset(_patterns(json.loads(step.__getstate__()))) for step in steps)


def _patterns(step: object) -> Iterator[str]:
    """The regular expressions in a step of a tokenizer."""
    if isinstance(step, dict) and isinstance(step.get("Regex"), str):
        yield step["Regex"]
    for inner in step.values() if isinstance(step, dict) else step if isinstance(step, list) else ():
        yield from _patterns(inner)


def _start_of(part: list[int], ids: list[int]) -> int:
    """Where `part` begins in `ids`; 0 if nowhere."""
    starts = range(len(ids) - len(part) + 1)
    return next((start for start in starts if ids[start : start + len(part)] == part), 0)


def byte_level_bytes(token: str) -> bytes:
    """The bytes of a token; characters outside the alphabet become their UTF-8."""
    return b"".join(bytes([BYTE_OF[char]]) if char in BYTE_OF else char.encode() for char in token)


def _steps(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if decoder is None:
        return []
    if decoder["type"] != "Sequence":
        return [decoder]
    return [step for inner in decoder["decoders"] for step in _steps(inner)]


def _decodes_spaces(step: dict[str, Any]) -> bool:
    """Whether a step turns ▁ into a space."""
    return step["type"] == "Metaspace" or (step["type"] == "Replace" and step.get("content") == " ")


def _drops_space(step: dict[str, Any]) -> bool:
    if step["type"] == "Metaspace":
        never = step.get("prepend_scheme") == "never" or step.get("add_prefix_space") is False
        return not never
    return step["type"] == "Strip" and step.get("content") == " " and step.get("start", 0) > 0
