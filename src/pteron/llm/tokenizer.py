"""Text <-> token ids: the one interface of all tokenizers, and how a file finds its own.

tokenizer = load_tokenizer("folder or file")
ids = tokenizer.encode("Once upon a time", bos=tokenizer.adds_bos)
tokenizer.decode(ids)
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

from pteron.errors import FormatError, InputError
from pteron.llm.settings import Settings, read_settings
from pteron.llm.text_stream import TextStream

# In the order of preference: the first says most about how its model wants text to be cut.
FILE_NAMES = ("tokenizer.json", "tokenizer.model", "*.tiktoken", "tokenizer.bin")
RANK_LINE = re.compile(rb"[A-Za-z0-9+/]+=* \d+\s")


class Tokenizer(ABC):
    """What a model's tokenizer can do, whatever file it came from.

    A token is a run of bytes, not of characters: an emoji may take four. `token_bytes` says which bytes a
    token adds to a text (none, for a control token), and everything about decoding follows from that.
    """

    vocab_size: int
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    chat_template: str | None = None
    adds_bos: bool = False  # whether the model expects plain text to open with `bos_id`
    leading_space: bool = False  # whether encoding puts a space before the text, which decoding drops

    @abstractmethod
    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token adds to a text; control tokens add none."""

    @abstractmethod
    def token_id(self, text: str) -> int | None:
        """The id of a token by its text, control tokens included."""

    @abstractmethod
    def token_text(self, token: int) -> str:
        """A token as its file spells it."""

    @abstractmethod
    def _encode(self, text: str, special: bool) -> list[int]: ...

    def encode(self, text: str, *, bos: bool = False, special: bool = False) -> list[int]:
        """The ids of a text.

        `bos` puts the token that opens a text in front, if there is one and the text does not spell it.
        `special` recognises control tokens inside the text: for prompts made by a chat template, not for
        what a user typed.
        """
        ids = self._encode(text, special)
        if bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of a whole sequence; control tokens add nothing, broken characters become U+FFFD."""
        stream = self.stream(continuing=False)
        return "".join([stream.push(token) for token in ids]) + stream.finish()

    def stream(self, *, continuing: bool = True) -> TextStream:
        """A decoder for tokens as they arrive, `continuing` a text or opening one."""
        return TextStream(self.token_bytes, drop_space=self.leading_space and not continuing)

    def apply(self, settings: Settings) -> None:
        """Let what the files beside a tokenizer say override what the tokenizer itself knows."""

        def known(token: int | str) -> int:
            found = token if isinstance(token, int) else self.token_id(token)
            if found is None or not 0 <= found < self.vocab_size:
                raise FormatError(f"the tokenizer has no token {token!r}, which the files beside it name")
            return found

        if settings.bos is not None:
            self.bos_id = known(settings.bos)
        if settings.eos:
            self.eos_ids = tuple(dict.fromkeys(known(token) for token in settings.eos))
        if settings.adds_bos is not None:
            self.adds_bos = settings.adds_bos
        if settings.chat_template is not None:
            self.chat_template = settings.chat_template


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer of a file, or of a folder that holds one.

    Hugging Face's tokenizer.json, SentencePiece models, tiktoken ranks and llama2.c's tokenizer.bin are told
    apart by their content. The configuration files in the same folder give the ids that begin and end a text
    and the chat template.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path} does not exist")
    folder = path if path.is_dir() else path.parent
    settings = read_settings(folder)
    file = _find(folder, settings.tokenizer) if path.is_dir() else path
    tokenizer = _open(file)
    tokenizer.apply(settings)
    return tokenizer


def _find(folder: Path, named: str | None) -> Path:
    for pattern in (named,) if named else FILE_NAMES:
        for file in sorted(folder.glob(pattern)):
            return file
    raise InputError(f"{folder} holds no tokenizer; looked for {named or ', '.join(FILE_NAMES)}")


def _open(file: Path) -> Tokenizer:
    # Each format brings its own library, imported only where it is needed.
    with file.open("rb") as opened:
        head = opened.read(4096)
    if head.lstrip()[:1] == b"{":
        from pteron.llm.vocabularies.huggingface import HuggingFaceTokenizer

        return HuggingFaceTokenizer(file)
    if RANK_LINE.match(head):
        from pteron.llm.vocabularies.tiktoken_ranks import TiktokenTokenizer

        return TiktokenTokenizer(file)
    # A SentencePiece model is a protocol buffer whose first field has tag 10; llama2.c's file begins with
    # a small integer of four bytes.
    if head[:1] == b"\n" and head[1:4] != b"\0\0\0":
        from pteron.llm.vocabularies.sentencepiece_model import SentencePieceTokenizer

        return SentencePieceTokenizer(file)
    from pteron.llm.vocabularies.llama2c import Llama2cTokenizer

    return Llama2cTokenizer(file)
