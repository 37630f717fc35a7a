"""How a product with weights of few bits is cut where every invocation works alone (q4_thread.wgsl): what
software adapters want."""

from __future__ import annotations

from typing import Any

from pteron.ops.row_layout import split

TILE = 4  # rows of an invocation
WIDE = 64  # columns of an invocation, at most
NARROW = 8  # and at least
STRIPS = 16  # invocations, unless columns are few: two vectors of eight lanes, or four of four
WORDS = 4  # of a block: products that are added up one after the other
LOOPS_MAX = 60_000  # iterations of an invocation, fewer than those after which adapters end it


def cut(rows: int, words: int) -> tuple[dict[str, Any], int]:
    """(declarations, words of k that an invocation takes) for `rows` rows of x, `words` words long."""
    tile = min(TILE, max(rows, 1))
    _, blocks = split(-(-words // WORDS), LOOPS_MAX // ((8 + WIDE) * (1 + tile)))
    return {"TILE": tile, "WIDE": WIDE, "NARROW": NARROW, "STRIPS": STRIPS}, blocks * WORDS


def layout(library: str, pitch: int, group: int) -> dict[str, Any]:
    """How weights are read: four words at once where rows and groups are whole fours of them."""
    if library != "words" or pitch % WORDS or group % WORDS:
        return {}
    return {"use_words": "words_wide", "load_block": "unpack_words(load_words(n, first))"}


def invocations(tile: int, rows: int, columns: int) -> int:
    """Of one part."""
    tiles = -(-rows // tile)
    wide = min(max(tiles * columns // STRIPS, NARROW), WIDE)
    return tiles * -(-columns // wide)
