"""Changes to plain bytes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from struct import pack_into, unpack_from

# Numbers at the edges of what 7, 8, 15, 16, 31, 32 and 63 bits hold are likelier to find a missing check.
EDGES = (
    0, 1, 2, 3, 4, 7, 8, 64, 127, 128, 255, 32767, 65535, 65536,
    2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1,
)  # fmt: skip
_BYTES_MAX = 1 << 20


def havoc(data: bytes, random: Random, other: Callable[[], bytes]) -> bytes:
    """One change of a kind that chance picks."""
    copy = bytearray(data) or bytearray(1)
    random.choices(_CHANGES, _WEIGHTS)[0](copy, random, other)
    return bytes(copy[:_BYTES_MAX])


def edge(random: Random, size: int) -> int:
    """A number of `size` bytes: small, at an edge, or any."""
    drawn = random.choice(
        (random.randrange(16), random.choice(EDGES), -random.randrange(1, 9), random.getrandbits(64))
    )
    return drawn % (1 << (8 * size))


def _flip(copy: bytearray, random: Random, other: Callable[[], bytes]) -> None:
    for _ in range(random.choice((1, 1, 2, 8))):
        copy[random.randrange(len(copy))] ^= 1 << random.randrange(8)


def _replace(copy: bytearray, random: Random, other: Callable[[], bytes]) -> None:
    for _ in range(random.choice((1, 4, 16))):
        copy[random.randrange(len(copy))] = random.randrange(256)


def _number(copy: bytearray, random: Random, other: Callable[[], bytes]) -> None:
    size = random.choice((1, 2, 4, 4, 8))
    if len(copy) >= size:
        at = random.randrange(len(copy) - size + 1)
        at -= at % size if random.random() < 0.8 else 0
        copy[at : at + size] = edge(random, size).to_bytes(size, "little")


def _nudge(copy: bytearray, random: Random, other: Callable[[], bytes]) -> None:
    """A word a little more or less, as a miscounted offset would be."""
    if len(copy) >= 4:
        at = random.randrange(len(copy) // 4) * 4
        word = unpack_from("<I", copy, at)[0] + random.choice((-8, -4, -1, 1, 2, 4, 8, 16))
        pack_into("<I", copy, at, word % 2**32)


def _move(copy: bytearray, random: Random, other: Callable[[], bytes]) -> None:
    start, size = _chunk(copy, random)
    at = random.randrange(len(copy))
    copy[at : at + size] = copy[start : start + size]


def _double(copy: bytearray, random: Random, other: Callable[[], bytes]) -> None:
    start, size = _chunk(copy, random)
    copy[start:start] = copy[start : start + size] * random.choice((1, 1, 3, 50))


def _remove(copy: bytearray, random: Random, other: Callable[[], bytes]) -> None:
    start, size = _chunk(copy, random)
    del copy[start : start + size]


def _clear(copy: bytearray, random: Random, other: Callable[[], bytes]) -> None:
    start, size = _chunk(copy, random)
    copy[start : start + size] = random.choice((b"\0", b"\xff")) * size


def _cut(copy: bytearray, random: Random, other: Callable[[], bytes]) -> None:
    del copy[random.randrange(len(copy)) :]


def _splice(copy: bytearray, random: Random, other: Callable[[], bytes]) -> None:
    """Part of another input in the place of a part of this one."""
    donor = other() or b"\0"
    begin = random.randrange(len(donor))
    piece = donor[begin : begin + random.choice((4, 16, 64, 1024))]
    start, size = _chunk(copy, random)
    copy[start : start + random.choice((len(piece), size))] = piece


def _chunk(copy: bytearray, random: Random) -> tuple[int, int]:
    size = random.randrange(1, max(2, min(256, len(copy) // 2)))
    return random.randrange(len(copy)), size


_CHANGES = (_flip, _replace, _number, _nudge, _move, _double, _remove, _clear, _cut, _splice)
_WEIGHTS = (4, 3, 8, 5, 2, 2, 3, 2, 1, 3)
