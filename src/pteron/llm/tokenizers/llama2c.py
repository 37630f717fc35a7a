"""llama2.c's tokenizer.bin: pieces with scores, for byte pair encoding as in SentencePiece.

The file is an int32 (the longest piece's length), then for each id a float32 score, an int32 length and the
piece's bytes. Ids 0, 1 and 2 are unknown, begin and end; the next 256 are the single bytes.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

from pteron.errors import FormatError
from pteron.format.source import read_file
from pteron.llm.tokenizers.tokenizer import Tokenizer
from pteron.names.model_files import COMPANION_BYTES_MAX

CONTROLS = ("<unk>", "<s>", "</s>")
FIRST_BYTE = len(CONTROLS)
FIRST_PIECE = FIRST_BYTE + 256


class Llama2cTokenizer(Tokenizer):
    bos_id = 1
    eos_ids = (2,)
    adds_bos = True
    leading_space = True

    def __init__(self, file: Path) -> None:
        self._scores, pieces = _read(file)
        self._pieces = [b""] * FIRST_BYTE + [bytes([byte]) for byte in range(256)] + pieces[FIRST_PIECE:]
        # Some single characters are pieces; the others become byte tokens.
        self._ids = {piece: id for id, piece in enumerate(self._pieces) if id >= FIRST_PIECE}
        self.vocab_size = len(self._pieces)

    def token_bytes(self, token: int) -> bytes:
        return self._pieces[token] if 0 <= token < self.vocab_size else b""

    def token_id(self, text: str) -> int | None:
        return CONTROLS.index(text) if text in CONTROLS else self._ids.get(text.encode())

    def token_text(self, token: int) -> str:
        if 0 <= token < FIRST_BYTE:
            return CONTROLS[token]
        return self.token_bytes(token).decode("utf-8", "replace")

    def _encode(self, text: str, special: bool) -> list[int]:
        if not text:
            return []
        characters = [character.encode("utf-8", "replace") for character in " " + text]
        return [id for piece in merge_pairs(characters, self._rank) for id in self._ids_of(piece)]

    def _rank(self, piece: bytes) -> float | None:
        """Smaller merges earlier: the negated score."""
        id = self._ids.get(piece)
        return None if id is None else -self._scores[id]

    def _ids_of(self, piece: bytes) -> list[int]:
        id = self._ids.get(piece)
        return [FIRST_BYTE + byte for byte in piece] if id is None else [id]


def _read(file: Path) -> tuple[list[float], list[bytes]]:
    data = read_file(file, COMPANION_BYTES_MAX)
    scores: list[float] = []
    pieces: list[bytes] = []
    position = 4
    while position < len(data):
        if position + 8 > len(data):
            raise FormatError(f"{file.name}: cut off at piece {len(pieces)}")
        score, length = struct.unpack_from("<fi", data, position)
        position += 8
        if not 0 <= length <= len(data) - position:
            raise FormatError(f"{file.name}: not a tokenizer, or damaged at piece {len(pieces)}")
        scores.append(score)
        pieces.append(data[position : position + length])
        position += length
    if len(pieces) < FIRST_PIECE:
        raise FormatError(f"{file.name}: {len(pieces)} pieces, too few for a llama2.c tokenizer")
    return scores, pieces


def merge_pairs(symbols: Sequence[bytes], rank: Callable[[bytes], float | None]) -> list[bytes]:
    """Byte pair encoding: merge the pair with the smallest rank first, the leftmost among equals.

    The symbols form a doubly linked list, and candidate pairs wait in a heap; a candidate is dropped if one
    of its sides was merged before its turn.
    """
    parts = list(symbols)  # a symbol that was merged into its left neighbour becomes empty
    before = list(range(-1, len(parts) - 1))
    after = [*range(1, len(parts)), -1]
    candidates: list[tuple[float, int, int, bytes]] = []

    def propose(left: int) -> None:
        right = after[left] if left >= 0 else -1
        if right < 0:
            return
        joined = parts[left] + parts[right]
        found = rank(joined)
        if found is not None:
            heapq.heappush(candidates, (found, left, right, joined))

    for left in range(len(parts) - 1):
        propose(left)
    while candidates:
        _, left, right, joined = heapq.heappop(candidates)
        if not parts[left] or after[left] != right or parts[left] + parts[right] != joined:
            continue
        parts[left], parts[right] = joined, b""
        after[left] = after[right]
        if after[right] >= 0:
            before[after[right]] = left
        propose(before[left])
        propose(left)
    return [part for part in parts if part]
