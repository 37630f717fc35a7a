"""SentencePiece models (tokenizer.model of Llama 2, Mistral, Gemma, ...), by the `sentencepiece` library."""

from __future__ import annotations

import re
from pathlib import Path

from pteron.extras import need
from pteron.format.source import read_file
from pteron.llm.tokenizers.tokenizer import Tokenizer
from pteron.names.model_files import COMPANION_BYTES_MAX, as_format_error


class SentencePieceTokenizer(Tokenizer):
    adds_bos = True

    def __init__(self, file: Path) -> None:
        library = need("sentencepiece", f"reading {file.name}")
        content = read_file(file, COMPANION_BYTES_MAX)
        with as_format_error(f"{file.name} is not a SentencePiece model"):
            self._processor = library.SentencePieceProcessor(model_proto=content)
            self._examine()

    def _examine(self) -> None:
        self.vocab_size = self._processor.get_piece_size()
        if self._processor.bos_id() >= 0:
            self.bos_id = self._processor.bos_id()
        if self._processor.eos_id() >= 0:
            self.eos_ids = (self._processor.eos_id(),)
        # The library does not expose the setting add_dummy_prefix; its effect shows it.
        self.leading_space = "".join(self._processor.encode("a", out_type=str)).startswith("▁")
        pieces: list[str] = self._processor.id_to_piece(list(range(self.vocab_size)))
        self._controls = {piece: id for id, piece in enumerate(pieces) if self._processor.is_control(id)}
        self._bytes = [self._bytes_of(id, piece) for id, piece in enumerate(pieces)]

    def _bytes_of(self, id: int, piece: str) -> bytes:
        if self._processor.is_control(id):
            return b""
        if self._processor.is_byte(id):
            return bytes.fromhex(piece[3:5])  # <0x0A>
        if self._processor.is_unknown(id):
            return "\N{REPLACEMENT CHARACTER}".encode()
        return piece.replace("▁", " ").encode()

    def token_bytes(self, token: int) -> bytes:
        return self._bytes[token] if 0 <= token < self.vocab_size else b""

    def token_id(self, text: str) -> int | None:
        id: int = self._processor.piece_to_id(text)
        return None if self._processor.is_unknown(id) and text != self.token_text(id) else id

    def token_text(self, token: int) -> str:
        return str(self._processor.id_to_piece(token)) if 0 <= token < self.vocab_size else ""

    def _encode(self, text: str, special: bool) -> list[int]:
        """The library does not recognise control tokens in a text, so the text is split at them."""
        if not special or not self._controls:
            return list(self._processor.encode(text))
        pattern = "|".join(re.escape(control) for control in sorted(self._controls, key=len, reverse=True))
        ids: list[int] = []
        for part in re.split(f"({pattern})", text):
            ids += [self._controls[part]] if part in self._controls else self._processor.encode(part)
        return ids
