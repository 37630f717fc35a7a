"""A sound file enters; any number of damaged copies leave, the same ones for the same seed.

Damage goes where structure is: the header and flatbuffer of the program, and the header and
flatbuffer of each delegate. Weights are left alone, for any bytes are good weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from struct import pack_into, unpack_from

_DELEGATE_MAGIC = b"VH00"
# Numbers at the edges of what 8, 16, 31 and 32 bits hold are likelier to find a missing check.
_EDGES = (0, 1, 2, 3, 4, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def structure_of(program: bytes) -> list[range]:
    """The parts of a `.pte` file that are not weights."""
    size = unpack_from("<Q", program, 16)[0] if program[8:12] == b"eh00" else len(program)
    parts = [range(size)]
    found = program.find(_DELEGATE_MAGIC, size)
    while found >= 0:
        start = found - 4
        at, length = unpack_from("<II", program, start + 10)
        parts.append(range(start, start + at + length))
        found = program.find(_DELEGATE_MAGIC, found + 4)
    return parts


def damaged_copies(
    original: bytes, parts: Sequence[range], count: int, seed: int
) -> Iterator[tuple[str, bytes]]:
    """Pairs of what was done and the damaged bytes; every part is damaged equally often."""
    random = Random(seed)
    for number in range(count):
        part = parts[number % len(parts)]
        damage = random.choices(_DAMAGES, _WEIGHTS)[0]
        copy = bytearray(original)
        done = damage(copy, part, random)
        yield f"copy {number} (seed {seed}): {done}", bytes(copy)


def _flip_bits(copy: bytearray, part: range, random: Random) -> str:
    positions = [random.choice(part) for _ in range(random.choice((1, 1, 2, 8)))]
    for position in positions:
        copy[position] ^= 1 << random.randrange(8)
    return f"bits flipped in bytes {positions}"


def _replace_bytes(copy: bytearray, part: range, random: Random) -> str:
    positions = [random.choice(part) for _ in range(random.choice((1, 4, 32)))]
    for position in positions:
        copy[position] = random.randrange(256)
    return f"bytes {positions} replaced"


def _overwrite_word(copy: bytearray, part: range, random: Random) -> str:
    # Offsets, lengths and ids are mostly aligned words.
    position = random.randrange(part.start // 4, (part.stop - 4) // 4) * 4
    word = random.choice((random.choice(_EDGES), random.getrandbits(32), random.randrange(len(copy))))
    pack_into("<I", copy, position, word)
    return f"word {word:#x} at byte {position}"


def _overwrite_small(copy: bytearray, part: range, random: Random) -> str:
    """Change a word a little, as a miscounted offset would."""
    position = random.randrange(part.start // 4, (part.stop - 4) // 4) * 4
    word = (unpack_from("<I", copy, position)[0] + random.choice((-8, -4, -1, 1, 2, 4, 8, 16))) % 2**32
    pack_into("<I", copy, position, word)
    return f"word changed to {word:#x} at byte {position}"


def _change_number(copy: bytearray, part: range, random: Random) -> str:
    """Replace a small word by another: most ids, sizes and counts are such words, and stay plausible."""
    words = range(part.start // 4 + 1, (part.stop - 4) // 4)
    small = [word for word in words if unpack_from("<I", copy, 4 * word)[0] < 64]
    position = 4 * random.choice(small or words)
    number = random.choice((random.randrange(16), random.randrange(64), random.choice(_EDGES)))
    pack_into("<I", copy, position, number)
    return f"number {number:#x} at byte {position}"


def _swap_chunks(copy: bytearray, part: range, random: Random) -> str:
    size = random.randrange(1, max(2, min(256, len(part) // 4)))
    first, second = (random.randrange(part.start, part.stop - size) for _ in range(2))
    copy[first : first + size], copy[second : second + size] = (
        copy[second : second + size],
        copy[first : first + size],
    )
    return f"{size} bytes at {first} and {second} exchanged"


def _clear_chunk(copy: bytearray, part: range, random: Random) -> str:
    size = random.randrange(1, max(2, min(256, len(part) // 4)))
    start = random.randrange(part.start, part.stop - size)
    filler = random.choice((0x00, 0xFF))
    copy[start : start + size] = bytes([filler]) * size
    return f"{size} bytes at {start} filled with {filler:#x}"


def _remove_chunk(copy: bytearray, part: range, random: Random) -> str:
    size = random.randrange(1, max(2, min(64, len(part) // 4)))
    start = random.randrange(part.start, part.stop - size)
    del copy[start : start + size]
    return f"{size} bytes at {start} removed"


def _truncate(copy: bytearray, part: range, random: Random) -> str:
    size = random.choice(part)
    del copy[size:]
    return f"cut off after {size} bytes"


_DAMAGES: tuple[Callable[[bytearray, range, Random], str], ...] = (
    _flip_bits,
    _replace_bytes,
    _overwrite_word,
    _overwrite_small,
    _change_number,
    _swap_chunks,
    _clear_chunk,
    _remove_chunk,
    _truncate,
)
_WEIGHTS = (4, 4, 8, 6, 12, 3, 2, 1, 1)
