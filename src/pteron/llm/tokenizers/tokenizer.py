"""Text <-> token ids: the interface of all tokenizers."""

from __future__ import annotations

import codecs
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from reprlib import repr as shortened

from pteron.errors import FormatError, InputError
from pteron.llm.arguments import integers
from pteron.names.model_files import TokenizerConfig, as_format_error

_log = logging.getLogger(__name__)


class Tokenizer(ABC):
    """Converts text to token ids and back. A token is a sequence of bytes, not of characters: an emoji may
    take four tokens. Decoding only needs `token_bytes`, the bytes that a token adds to a text.
    """

    name: str = "the tokenizer"  # of its file, for messages
    vocab_size: int
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    chat_template: str | None = None
    adds_bos: bool = False  # whether the model expects `bos_id` before plain text
    prefix_ids: tuple[int, ...] = ()  # all tokens that it expects there, if `bos_id` is the first of several
    leading_space: bool = False  # whether encoding puts a space before the text, which decoding drops

    @abstractmethod
    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token adds to a text; control tokens add none."""

    @abstractmethod
    def token_id(self, text: str) -> int | None:
        """The id of a token by its text, control tokens included."""

    @abstractmethod
    def token_text(self, token: int) -> str:
        """A token as the tokenizer's file spells it."""

    @property
    def bos_eos(self) -> tuple[str, str]:
        """The texts of the tokens that begin and end a text; empty if there are none."""
        bos = "" if self.bos_id is None else self.token_text(self.bos_id)
        return bos, self.token_text(self.eos_ids[0]) if self.eos_ids else ""

    @cached_property
    def longest(self) -> int:
        """The bytes of the longest token, by its text or by its name."""
        sizes = (
            max(len(self.token_bytes(token)), len(self.token_text(token).encode()))
            for token in range(self.vocab_size)
        )
        return max(sizes, default=1)

    @abstractmethod
    def _encode(self, text: str, special: bool) -> list[int]: ...

    def encode(self, text: str, *, bos: bool = False, special: bool = False) -> list[int]:
        """The ids of a text.

        `bos` puts `bos_id` first, and the tokens that follow it in each text, unless the text begins with it.
        `special` recognises control tokens inside
        the text: for prompts that a chat template rendered, not for what a user typed.
        """
        if not isinstance(text, str):
            raise InputError(f"text must be a string, not {shortened(text)}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"the text holds a lone surrogate, at {error.start}: {error.reason}") from None
        with as_format_error(f"{self.name} cannot encode this text"):
            ids = self._encode(text, special)
        if ids and not 0 <= min(ids) <= max(ids) < self.vocab_size:
            raise FormatError(f"{self.name} gives token {max(ids)}, of only {self.vocab_size}")
        if bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids[:0] = self.prefix_ids if self.prefix_ids[:1] == (self.bos_id,) else [self.bos_id]
        return ids

    def encode_marked(self, text: str) -> list[int]:
        """The ids of a whole text, with the special tokens that the tokenizer's file puts around it."""
        return self.encode(text, bos=self.adds_bos)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of a sequence; control tokens add nothing, incomplete characters become U+FFFD."""
        stream = self.stream(continuing=False)
        return "".join([stream.push(token) for token in integers("token ids", ids)]) + stream.finish()

    def stream(self, *, continuing: bool = True) -> TextDecoder:
        """A decoder for tokens as they arrive. With `continuing=False`, for the start of a text, it drops the
        leading space."""
        return TextDecoder(self.token_bytes, drop_space=self.leading_space and not continuing)

    def apply(self, config: TokenizerConfig) -> None:
        """Let the configuration files override what the tokenizer's file says. Tokens that the tokenizer does
        not have are ignored, unless texts begin with them: files repeat the defaults of larger vocabularies.
        """
        if config.adds_bos is not None:
            self.adds_bos = config.adds_bos
        begins, ends = self._first_known(config.bos), self._first_known(config.eos)
        if begins:
            self.bos_id = begins[0]
        elif self.adds_bos and any(config.bos.values()):
            raise FormatError(f"{self.name} has no token that a file in its folder names to begin texts with")
        self.eos_ids = ends or self.eos_ids
        if config.chat_template is not None:
            self.chat_template = config.chat_template

    def _first_known(self, named: Mapping[str, Iterable[int | str]]) -> tuple[int, ...]:
        """The tokens of the first file that names any which the tokenizer has."""
        for file, tokens in named.items():
            found, missing = dict[int, None](), list[str]()
            for token in tokens:
                with as_format_error(f"{self.name} cannot look up {token!r}, which {file} names"):
                    id = token if isinstance(token, int) else self.token_id(token)
                if id is not None and 0 <= id < self.vocab_size:
                    found[id] = None
                else:
                    missing.append(shortened(token))
            if missing:
                _log.warning("%s has no token %s, which %s names", self.name, ", ".join(missing), file)
            if found:
                return tuple(found)
        return ()


class TextDecoder:
    """Turns tokens into text as they arrive.

    `push` returns the text that a token completes: a character whose bytes are spread over several tokens
    comes with the last of them. `finish` returns U+FFFD for bytes that did not become a character.
    """

    def __init__(self, token_bytes: Callable[[int], bytes], drop_space: bool) -> None:
        self._token_bytes = token_bytes
        self._drop_space = drop_space
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        data = self._token_bytes(token)
        if self._drop_space and data:
            data = data.removeprefix(b" ")
            self._drop_space = False
        return self._decoder.decode(data)

    def finish(self) -> str:
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest


def check_same_tokens(a: Tokenizer, b: Tokenizer) -> None:
    """Raise if two tokenizers have different tokens."""
    if a is b:
        return
    size = a.vocab_size
    if size != b.vocab_size:
        raise InputError(f"the draft model's tokenizer has {b.vocab_size} tokens, not {size} as the model's")
    other = next((token for token in range(size) if a.token_bytes(token) != b.token_bytes(token)), None)
    if other is not None:
        raise InputError(
            f"the draft model's tokenizer differs from the model's: token {other} is "
            f"{b.token_text(other)!r}, not {a.token_text(other)!r}"
        )
