"""Products with 4-bit or 8-bit weights for many rows: tiles of floats (q4_tiled.wgsl), of matrices
(q4_matrix.wgsl) or of int8 (q4_int8.wgsl), and strips for 5 to 32 rows of floats (q4_rows.wgsl). Deep
products are split along k into parts, which another launch merges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pteron.dtypes import Storage
from pteron.families.quantized import tiles
from pteron.families.quantized.epilogue import Epilogue
from pteron.families.quantized.packing import Choice, Grouping, PackedWeights
from pteron.ops import AnyInt, Dispatch, Operand, Scratch, Target, Weight
from pteron.ops.row_layout import fits_registers, folded, register_rows, row_groups
from pteron.ops.tile_table import MATRIX_TILES, TILES
from pteron.ops.tiles import MatrixTile, Tile, choose, matrix_tiles, planes_of
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

(GROUPED_TILE,) = TILES["q4_grouped"]
GROUP_ROWS_MIN = 16  # per matrix: with more on average, grouped rows are faster than rows one by one
INT8_GROUP_MAX = 256  # words: Σ |x| · |w| <= 8 · 256 · 128 · 8 stays below 2^22


@dataclass(frozen=True, slots=True)
class Int8:
    """A scale and a zero point per row, by which x becomes int8; or x as int8 words, with the zero points
    after the scales (q4_quantize.wgsl, quantize_rows.wgsl)."""

    scales: Operand | Scratch
    zeros: Operand | None
    weight_sums: Weight | None = None  # of every group, [column][group], for q4_int8
    words: Scratch | None = None

    def is_packed(self, packed: PackedWeights) -> bool:
        """Whether q4_int8 can run: whole groups of whole steps, short enough for exact sums."""
        is_even = packed.depth % (8 * packed.group) == packed.group % 4 == 0
        return self.weight_sums is not None and is_even and packed.group <= INT8_GROUP_MAX


def product(
    x: Operand | Scratch,
    packed: PackedWeights,
    epilogue: Epilogue,
    target: Target,
    int8: Int8 | None = None,
    *,
    is_gated: bool = False,
) -> Iterator[Dispatch]:
    """The launches. If gated, the first half of the columns is the gate of the second. Rows with one of
    several matrices each must be grouped."""
    columns, words = packed.columns, packed.words
    rows = epilogue.count // (columns // 2 if is_gated else columns)
    is_packed = int8 is not None and int8.is_packed(packed)
    chosen = _choose_kernel(x, rows, packed, target, int8, is_gated=is_gated)
    part = max(1, -(-words // (chosen.unit * chosen.parts))) * chosen.unit
    parts = -(-words // part)
    factors: dict[str, Any] = chosen.layout.declarations | packed.operands | packed.sizes
    if int8 and is_packed:
        if int8.words is None:
            made = replace(int8, scales=Scratch(2 * rows), words=Scratch(2 * rows * words, Storage.U32))
            yield _quantize(x, int8, made, rows, words)
            int8 = made
        factors |= {"x": int8.words, "weight_sums": int8.weight_sums}
    else:
        factors |= {"x": x, "x_zeros": int8.zeros if int8 else None, "QUADS": packed.depth // 4}
        if chosen.name != "q4_rows":
            factors["IN_BYTES"] = packed.bits == 8
    factors |= {"x_scales": int8.scales if int8 else None, "rows": rows, "columns": columns, "PART": part}
    ending = epilogue.arguments | ({"OTHERS": columns // 2, "IS_GATED": True} if is_gated else {})
    bound = [*factors.values(), *ending.values()]
    can_bind = sum(isinstance(each, Operand | Scratch | Weight) for each in bound) <= target.buffers_max
    factors["groups"] = folded(target, parts * chosen.count)
    by_quads = epilogue.are_quads, columns % 4 == 0
    yield from launch(chosen.name, factors, ending, epilogue.count, parts, by_quads, can_bind=can_bind)


@dataclass(frozen=True, slots=True)
class _KernelChoice:
    """A kernel, what its workgroups compute, and into how many parts k is split."""

    name: str
    layout: tiles.Strip | Tile | MatrixTile
    count: AnyInt  # workgroups of one part
    parts: int
    unit: int  # words that stay in one part


def _choose_kernel(
    x: Operand | Scratch,
    rows: AnyInt,
    packed: PackedWeights,
    target: Target,
    int8: Int8 | None,
    *,
    is_gated: bool,
) -> _KernelChoice:
    """The kernel that suits the rows, the weights and the device."""
    is_float = int8 is None and packed.choice is None
    by_matrices = _matrix_tiles(x, rows, target) if is_float else ()
    if is_float and not by_matrices and (found := tiles.choose_strip(target, rows, packed)):
        strip, parts = found
        return _KernelChoice("q4_rows", strip, strip.count(rows, packed.columns), parts, strip.step_words)
    is_packed = int8 is not None and int8.is_packed(packed)
    choices: tuple[Tile | MatrixTile, ...] = (
        TILES["q4_int8"] if is_packed else (*TILES["q4_tiled"], *by_matrices)
    )
    filled, matrices = rows, packed.choice.matrices if packed.choice else 0
    if packed.choice:  # of each matrix, half a tile is empty
        choices, filled = (GROUPED_TILE,), rows + matrices * GROUPED_TILE.height // 2
    sizes = filled, packed.columns, 8 * packed.words, 8 * packed.group
    tile, parts = choose(choices, target, *sizes, is_gated)
    if packed.choice and is_gated:
        parts = 1  # the gates of all matrices come before all values
    name = "q4_int8" if is_packed else "q4_matrix" if isinstance(tile, MatrixTile) else "q4_tiled"
    count, unit = tile.count(rows, packed.columns, matrices), packed.group if is_packed else tile.step // 8
    return _KernelChoice(name, tile, count, parts, unit)


def _matrix_tiles(x: Operand | Scratch, rows: AnyInt, target: Target) -> tuple[MatrixTile, ...]:
    """Tiles for matrix cores, if the device has them and there are enough rows."""
    planes = planes_of(target, x.storage), planes_of(target, Storage.F32)  # weights times scales are f32
    found = matrix_tiles(MATRIX_TILES["q4_matrix"], target, planes)
    return found if found and rows >= tiles.MATRIX_ROWS_MIN[found[0].products] else ()


def are_groups_large(target: Target, rows: AnyInt, choice: Choice) -> bool:
    """Whether rows are grouped by their matrices for tiles."""
    can_group = not target.is_cpu and 8 * choice.matrices <= target.workgroup_bytes_max
    return can_group and rows > GROUP_ROWS_MIN * choice.matrices


def group_rows(choice: Choice, rows: AnyInt, target: Target) -> tuple[Choice, list[Dispatch]]:
    """The choice with rows grouped for tiles, and the launch that groups them."""
    matrices, height = choice.matrices, GROUPED_TILE.height
    if choice.experts is None:
        return replace(choice, grouping=Grouping()), []
    order = Scratch(rows, Storage.U32)
    bands = Scratch(4 * (rows // height + matrices), Storage.U32)
    launch = Dispatch(
        kernel("group_rows"),
        MATRICES=matrices,
        HEIGHT=height,
        WORKGROUP=target.invocations_max,
        experts=choice.experts,
        order=order,
        band_table=bands,
        rows=rows,
        groups=(1, 1, 1),
    )
    return replace(choice, grouping=Grouping(order, bands)), [launch]


def launch(
    name: str,
    factors: Mapping[str, Any],
    ending: Mapping[str, Any],
    count: AnyInt,
    parts: AnyInt,
    by_quads: tuple[bool, bool] = (False, False),
    *,
    can_bind: bool = True,
) -> Iterator[Dispatch]:
    """A kernel with its ending: `count` outputs. If k is in parts, or if the device cannot bind all operands
    at once, the kernel writes sums, and a second launch adds them up and finishes them. `by_quads`: whether
    outputs, and sums, are stored four columns at a time."""
    rows, columns = factors["rows"], factors["columns"]
    if parts == 1 and can_bind:
        yield Dispatch(kernel(name), **factors, **ending, BY_QUADS=by_quads[0])
        return
    sums = Scratch(parts * rows * columns)
    yield Dispatch(kernel(name), **factors, PARTS=parts, BY_QUADS=by_quads[1], partial=sums)
    yield Dispatch(
        kernel("q4_merge"),
        sums=sums,
        **ending,
        PARTS=parts,
        BY_QUADS=by_quads[0],
        x_scales=factors["x_scales"],
        rows=rows,
        columns=columns,
        threads=count // 4 if by_quads[0] else count,
    )


def _quantize(x: Operand | Scratch, given: Int8, made: Int8, rows: AnyInt, words: int) -> Dispatch:
    return Dispatch(
        kernel("q4_quantize"),
        WORDS=words,
        x=x,
        x_scales=given.scales,
        x_zeros=given.zeros,
        out=made.words,
        factors=made.scales,
        rows=rows,
        threads=rows * words,
    )


def can_quantize_rows(target: Target, x: Operand) -> bool:
    """Whether quantize_rows.wgsl can run for x."""
    return x.storage is Storage.F32 and fits_registers(target, x.shape[-1])


def quantize_rows(
    x: Operand, gain: Operand | None, eps: float, least: float, made: Int8, target: Target
) -> Dispatch:
    """The launch that writes x as int8 words, with a scale and a zero point per row, after an RMS norm if
    there is a gain."""
    rows = x.numel // x.shape[-1]
    # Norms are rounded the same way for few rows: lib/planes_int8.wgsl.
    layout = register_rows(target, rows, x.shape[-1], 2, in_one_order=gain is not None)
    return Dispatch(
        kernel("quantize_rows"),
        **layout,
        LEAST=least,
        EPS=eps,
        x=x,
        gain=gain,
        row_scales=made.scales,
        words=made.words,
        rows=rows,
        groups=row_groups(target, layout, rows),
    )
