"""Products with 4-bit or 8-bit weights from uniform arrays (q4_uniform.wgsl), the fastest loads on software
adapters. Weights are split into arrays of the maximum size of a binding, rows of x into tiles; the
last tile may end past the last row (`Target.slack`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from pteron.dtypes import Storage
from pteron.families.quantized.epilogue import Epilogue
from pteron.families.quantized.formats import FORMATS
from pteron.families.quantized.packing import PackedWeights
from pteron.ops import AnyInt, Dispatch, Operand, OperandSlice, Scratch, Target, Weight, parts_of
from pteron.ops.operand import joined
from pteron.ops.uniform_arrays import Cut
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

# By rows of an invocation (the largest that fits is used): its blocks of columns, which share loads of x, and
# the words that are added up before the scale is applied.
TILES = {8: (2, 2), 4: (1, 4), 1: (1, 4)}
ARRAYS = ("weights_a", "weights_b", "weights_c", "weights_d")  # of one launch
LAUNCHES_MAX = 256  # of one product over several tiles: with more, planning costs more than it saves
_QUAD = 16  # bytes


class UniformProduct(NamedTuple):
    """What a launch takes."""

    tile: int  # rows
    tiles: tuple[tuple[int, AnyInt], ...]  # first rows, and whether there are any (`parts_of`)
    columns: Cut  # in blocks of four


def choose(
    target: Target, x: Operand | Scratch, rows: AnyInt, packed: PackedWeights
) -> UniformProduct | None:
    """How to split a product for a software adapter; None if q4_uniform cannot run."""
    if not isinstance(x, Operand) or not rows or not _suits(target, x, packed):
        return None
    row_bytes = packed.depth * x.storage.itemsize
    tile = next((tile for tile in TILES if tile <= rows and tile * row_bytes <= target.uniform_bytes_max), 0)
    most = target.uniform_bytes_max // (_QUAD * (_words(packed) + _per_group(packed) * _groups(packed)))
    if not tile or not most:
        return None
    columns, tiles = Cut.of(-(-packed.columns // 4), most, len(ARRAYS)), tuple(parts_of(rows, tile))
    is_short = columns.launches * len(tiles) <= LAUNCHES_MAX
    is_aligned = tile * row_bytes % target.uniform_alignment == 0
    return UniformProduct(tile, tiles, columns) if len(tiles) == 1 or (is_short and is_aligned) else None


def product(
    x: Operand | Scratch, packed: PackedWeights, epilogue: Epilogue, cut: UniformProduct
) -> Iterator[Dispatch]:
    """x times the weights, a launch for every four arrays and tile of rows."""
    assert isinstance(x, Operand)
    blocks = cut.columns.piece
    across, step = TILES[cut.tile]
    sizes: dict[str, Any] = {
        "TILE": cut.tile,
        "WORDS": _words(packed),
        "GROUP": _group(packed),
        "STEP": step if _words(packed) % step == 0 == _group(packed) % step else 1,
        "BLOCKS": blocks,
        "ACROSS": across,
        "PER_GROUP": _per_group(packed),
        "IN_BYTES": packed.bits == 8,
    }
    for first in cut.columns.firsts:
        places = zip(ARRAYS, cut.columns.places(first), strict=True)
        arrays: dict[str, Any] = {name: _array(packed, 4 * block, blocks) for name, block in places}
        for first_row, is_there in cut.tiles:
            yield Dispatch(
                kernel("q4_uniform"),
                **sizes,
                x=OperandSlice(x, first_row * packed.depth),
                **arrays,
                **epilogue.arguments,
                rows=epilogue.count // packed.columns,
                columns=packed.columns,
                first_row=first_row,
                first_column=4 * first,
                threads=4 * -(-blocks // across) * is_there,
            )


def _suits(target: Target, x: Operand, packed: PackedWeights) -> bool:
    """Whether x is f32 in whole words, weights keep the file's order of words, and no block of columns spans
    two matrices."""
    matrices = _matrices(packed.weights)
    layouts = FORMATS[packed.bits].layouts
    return (
        target.has_uniform_arrays
        and x.storage is Storage.F32
        and x.has_slack
        and all(matrix.layout in layouts and matrix.shape[1] % 4 == 0 for matrix in matrices)
        and packed.depth % _per_word(packed) == 0
        and all(matrix.shape[0] % 4 == 0 for matrix in matrices[:-1])
    )


def _array(packed: PackedWeights, first: int, blocks: int) -> Weight:
    """Columns from `first` on: their words, then their scales and minima. Columns past the last are
    zeros."""
    slices = list(_slices(packed, first, blocks))
    kinds = [(_matrices(packed.weights), "columns of words", _words(packed))]
    for weight in (packed.scales, packed.minima):
        kinds += [(_matrices(weight), "columns of scales", _groups(packed))] if weight else []
    return joined(
        [
            replace(
                matrices[number],
                layout=layout,
                arguments=(start, count, room, length),
                count=4 * room * length,
                storage=Storage.U32,
            )
            for matrices, layout, length in kinds
            for number, start, count, room in slices
        ]
    )


def _slices(packed: PackedWeights, first: int, blocks: int) -> Iterator[tuple[int, int, int, int]]:
    """(matrix, first of its columns, how many, blocks that they take) of an array."""
    matrices = _matrices(packed.weights)
    end, before = first + 4 * blocks, 0
    for number, matrix in enumerate(matrices):
        columns = matrix.shape[0]
        start, stop = max(first - before, 0), min(end - before, columns)
        before += columns
        is_last = number == len(matrices) - 1
        if start < stop or (is_last and blocks):
            count = max(stop - start, 0)
            room = blocks if is_last else count // 4
            blocks -= room
            yield number, min(start, columns), count, room


def _matrices(weight: Weight) -> tuple[Weight, ...]:
    """The weights that share a buffer, separately."""
    own = weight.count - sum(other.count for other in weight.rest)
    return replace(weight, count=own, rest=()), *weight.rest


def _per_word(packed: PackedWeights) -> int:
    return FORMATS[packed.bits].per_word


def _words(packed: PackedWeights) -> int:
    return packed.depth // _per_word(packed)


def _group(packed: PackedWeights) -> int:
    """Words that share a scale."""
    return packed.group * 8 // _per_word(packed)


def _per_group(packed: PackedWeights) -> int:
    """Numbers: a scale, and perhaps a minimum."""
    return 2 if packed.minima else 1


def _groups(packed: PackedWeights) -> int:
    return -(-_words(packed) // _group(packed))
