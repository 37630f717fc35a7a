"""Changes to plain bytes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

# Numbers at the edges of what 7, 8, 15, 16, 31, 32 and 63 bits hold are likelier to find a missing check.
EDGES = (
    0, 1, 2, 3, 4, 7, 8, 64, 127, 128, 255, 32767, 65535, 65536,
    2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1,
)  # fmt: skip
_BYTES_MAX = 1 << 20


def havoc(data: bytes, random: Random, other: Callable[[], bytes]) -> bytes:
    """One change of a kind that chance picks."""
    copy = bytearray(data) or bytearray(1)
    at = random.randrange(len(copy))
    part = slice(at, at + random.randrange(1, max(2, min(256, len(copy) // 2))))
    match random.randrange(7):
        case 0:
            copy[at] ^= 1 << random.randrange(8)
        case 1 | 2:  # a number, mostly at its alignment
            size = random.choice((1, 2, 4, 4, 8))
            at -= at % size if random.random() < 0.8 else 0
            here = int.from_bytes(copy[at : at + size], "little")
            near = (here + random.choice((-8, -4, -1, 1, 2, 4, 8, 16))) % (1 << (8 * size))
            copy[at : at + size] = random.choice((near, edge(random, size))).to_bytes(size, "little")
        case 3:
            copy[at:at] = copy[part] * random.choice((1, 1, 3, 50))
        case 4:
            del copy[part]
        case 5:
            del copy[at:]
        case 6:  # a part of another input
            donor = other() or b"\0"
            begin = random.randrange(len(donor))
            copy[part] = donor[begin : begin + random.choice((4, 16, 64, 1024))]
    return bytes(copy[:_BYTES_MAX])


def edge(random: Random, size: int) -> int:
    """A number of `size` bytes: small, at an edge, or any."""
    drawn = random.choice(
        (random.randrange(16), random.choice(EDGES), -random.randrange(1, 9), random.getrandbits(64))
    )
    return drawn % (1 << (8 * size))
