"""Changes to protocol buffers: fields dropped, doubled, given other numbers and texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from fuzz.mutation.havoc import edge, havoc

_SIZES = {1: 8, 5: 4}  # bytes, by wire type


@dataclass
class Part:
    """A field: its tag and its content, which has further parts where it looks like a message."""

    tag: int
    content: bytes

    def encode(self) -> bytes:
        kind = self.tag & 7
        length = varint(len(self.content)) if kind == 2 else b""
        return varint(self.tag) + length + self.content


def mutate_message(data: bytes, random: Random, other: Callable[[], bytes]) -> bytes:
    """A message with one field, of it or of a message inside it, changed."""
    parts = parse(data)
    if not parts or random.random() < 0.1:
        return havoc(data, random, other)
    index = random.randrange(len(parts))
    # The many pieces of a vocabulary come first; what follows says how they are used.
    if random.random() < 0.4:
        index = len(parts) - 1 - random.randrange(min(3, len(parts)))
    part = parts[index]
    match random.randrange(6):
        case 0:
            del parts[index]
        case 1:
            parts[index:index] = [part] * random.choice((1, 2, 200))
        case 2 | 3 if part.tag & 7 == 2 and parse(part.content):
            part.content = mutate_message(part.content, random, other)
        case 4:
            part.tag = random.choice(
                (part.tag ^ 8, (part.tag & ~7) | random.choice((0, 1, 2, 5)), random.randrange(256))
            )
        case _:
            part.content = _content(part, random, other)
    return b"".join(part.encode() for part in parts)


def _content(part: Part, random: Random, other: Callable[[], bytes]) -> bytes:
    kind = part.tag & 7
    if kind == 0:
        return varint(edge(random, random.choice((1, 4, 8))))
    if kind in _SIZES:
        return edge(random, _SIZES[kind]).to_bytes(_SIZES[kind], "little")
    texts = (b"", b"\xff\xfe", b"\0", part.content * 2, "▁".encode(), b"<0x", b"<0xZZ>", b"<s>")
    return random.choice((random.choice(texts), havoc(part.content, random, other)))


def parse(data: bytes) -> list[Part]:
    """The fields of a message, or none where these bytes are no message."""
    parts: list[Part] = []
    at = 0
    while at < len(data):
        tag, at = _read(data, at)
        kind = tag & 7
        if kind == 0:
            _, end = _read(data, at)
        elif kind == 2:
            length, at = _read(data, at)
            end = at + length
        else:
            end = at + _SIZES.get(kind, len(data) + 1)
        if not 0 <= at <= end <= len(data) or not tag >> 3:
            return []
        parts.append(Part(tag, data[at:end]))
        at = end
    return parts


def _read(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while 0 <= at < len(data):
        number |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return number, at
    return 0, -1


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
