"""A tokenizer of single bytes, for tiny models that were never trained on text."""

from __future__ import annotations

from pteron.llm import Tokenizer

FIRST_BYTE = 3  # ids below are control tokens: 1 opens a text, 2 ends it


class ByteTokenizer(Tokenizer):
    """Token id 3 + b is byte b, so every character beyond ASCII takes several tokens."""

    vocab_size = 512
    bos_id = 1
    eos_ids: tuple[int, ...] = (2,)
    adds_bos = True

    def token_bytes(self, token: int) -> bytes:
        return bytes([token - FIRST_BYTE]) if FIRST_BYTE <= token < FIRST_BYTE + 256 else b""

    def token_id(self, text: str) -> int | None:
        data = text.encode()
        return FIRST_BYTE + data[0] if len(data) == 1 else None

    def token_text(self, token: int) -> str:
        return self.token_bytes(token).decode("latin-1")

    def _encode(self, text: str, special: bool) -> list[int]:
        return [FIRST_BYTE + byte for byte in text.encode()]
