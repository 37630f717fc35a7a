"""The alphabet of byte-level vocabularies: each of the 256 bytes as one printable character.

Bytes that print as themselves (in Latin-1) do; the others follow in order from U+0100 on.
"""

from __future__ import annotations

PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
HIDDEN = [byte for byte in range(256) if byte not in PRINTABLE]
CHARACTER_OF = {byte: chr(byte) for byte in PRINTABLE} | {
    byte: chr(0x100 + index) for index, byte in enumerate(HIDDEN)
}
BYTE_OF = {character: byte for byte, character in CHARACTER_OF.items()}


def to_bytes(token: str) -> bytes:
    """The bytes of a token; characters outside the alphabet stand for themselves."""
    return b"".join(
        bytes([BYTE_OF[character]]) if character in BYTE_OF else character.encode() for character in token
    )
