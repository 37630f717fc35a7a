"""SentencePiece models (tokenizer.model of Llama 2, Mistral, Gemma, ...), by the `sentencepiece` library."""

from __future__ import annotations

import re
from pathlib import Path

from pteron.errors import FormatError
from pteron.extras import need
from pteron.llm.tokenizer import Tokenizer


class SentencePieceTokenizer(Tokenizer):
    adds_bos = True

    def __init__(self, file: Path) -> None:
        library = need("sentencepiece", f"reading {file.name}")
        try:
            self._processor = library.SentencePieceProcessor(model_file=str(file))
        except Exception as error:  # the library raises nothing more precise
            raise FormatError(f"{file.name} is not a SentencePiece model: {error}") from error
        self.vocab_size = self._processor.get_piece_size()
        if self._processor.bos_id() >= 0:
            self.bos_id = self._processor.bos_id()
        if self._processor.eos_id() >= 0:
            self.eos_ids = (self._processor.eos_id(),)
        # Whether the model puts a space before a text is a setting that only its effect shows.
        self.leading_space = "".join(self._processor.encode("a", out_type=str)).startswith("▁")
        controls = (id for id in range(self.vocab_size) if self._processor.is_control(id))
        self._controls = {self._processor.id_to_piece(id): id for id in controls}

    def token_bytes(self, token: int) -> bytes:
        if not 0 <= token < self.vocab_size or self._processor.is_control(token):
            return b""
        piece: str = self._processor.id_to_piece(token)
        if self._processor.is_byte(token):
            return bytes.fromhex(piece[3:5])  # <0x0A>
        if self._processor.is_unknown(token):
            return "\N{REPLACEMENT CHARACTER}".encode()
        return piece.replace("▁", " ").encode()

    def token_id(self, text: str) -> int | None:
        id: int = self._processor.piece_to_id(text)
        return None if self._processor.is_unknown(id) and text != self.token_text(id) else id

    def token_text(self, token: int) -> str:
        return str(self._processor.id_to_piece(token))

    def _encode(self, text: str, special: bool) -> list[int]:
        """The library never finds control tokens in a text: where they are wanted, they part it."""
        if not special or not self._controls:
            return list(self._processor.encode(text))
        pattern = "|".join(re.escape(control) for control in sorted(self._controls, key=len, reverse=True))
        ids: list[int] = []
        for part in re.split(f"({pattern})", text):
            ids += [self._controls[part]] if part in self._controls else self._processor.encode(part)
        return ids
