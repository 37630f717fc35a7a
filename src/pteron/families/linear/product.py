"""A matrix product: its kernel is chosen from the live shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pteron.families.elementwise.activations import ACTIVATIONS
from pteron.families.elementwise.unary import widened
from pteron.families.linear import uniform
from pteron.ops import AnyInt, Dispatch, LiveInt, LiveShape, Operand, Scratch, Target, Weight, bucket, divides
from pteron.ops.row_layout import (
    BUSY,
    SUBGROUP,
    WALK_MAX,
    WORKGROUP,
    folded,
    row_groups,
    shared_rows,
    split,
)
from pteron.ops.shapes import broadcast_strides
from pteron.ops.tile_table import MATRIX_TILES, TILES
from pteron.ops.tiles import (
    PARTS_MAX,
    MatrixTile,
    choose,
    factor_declarations,
    matrix_tiles,
    planes_of,
)
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

ROWS_FEW = 4  # up to here a product reads its weights once and is bound by that
MATVEC_WALK_MAX = 1024  # products that a lane of matvec adds up one after the other
LANES_MAX = 256  # of matvec, for one column
QUADS_MAX = 4  # that a lane of matvec loads at once
MATRIX_ROWS_MIN = 16  # with fewer rows, most of a tile is empty


@dataclass(frozen=True, slots=True)
class _KernelChoice:
    """A kernel, and the grid of one part: workgroups, invocations, or rows of a row kernel."""

    name: str
    overrides: Mapping[str, Any]
    span_max: AnyInt  # k of one part
    unit: int = 1  # k that stay in one part
    groups: AnyInt = 0
    threads: AnyInt = 0
    rows: AnyInt = 0

    def grid(self, target: Target, parts: AnyInt) -> dict[str, Any]:
        if self.groups != 0:
            return {"groups": folded(target, self.groups * parts)}
        if self.rows:
            return {"groups": row_groups(target, self.overrides, self.rows * parts)}
        return {"threads": self.threads * parts}


@dataclass(frozen=True, slots=True)
class Product:
    """out[z] = activation(alpha · a[z] · b[z] + beta · bias) + addend, a row-major or (one matrix)
    column-major, b by its strides or as `b_layout`, arguments of the launches, has it."""

    a: Operand
    b: Operand | Weight
    out: Operand
    rows: AnyInt
    columns: AnyInt
    depth: AnyInt
    b_row: AnyInt
    b_column: AnyInt
    batch: AnyInt = 1
    bias: Operand | Weight | None = None
    alpha: float = 1.0
    beta: float = 1.0
    a_by_columns: bool = False
    b_layout: Mapping[str, Any] = field(default_factory=dict)
    first: int = 0  # column of out where this product's begin
    activation: str = "none"  # a name in ACTIVATIONS
    addend: Operand | None = None  # of the shape of out, added last
    others: tuple[Operand, ...] = ()  # one or two outputs of the columns after those of out

    @property
    def _count(self) -> AnyInt:
        return self.batch * self.rows * self.columns

    def dispatches(self, target: Target) -> Iterator[Dispatch]:
        """The product, in bands of columns where b is a constant too large for one binding."""
        a, copies = widened(self.a, target)
        if arrays := self._uniform_arrays(a, target):
            yield from copies
            yield from replace(self, a=a)._by_uniform_arrays(arrays)
            return
        for band in self._bands(target):
            yield from band._launches(target)

    def _bands(self, target: Target) -> Iterator[Product]:
        b = self.b
        if not isinstance(b, Operand) or not isinstance(b.buffer, Weight) or b.rank != 2 or self.b_layout:
            yield self
            return
        room = target.binding_bytes_max // (b.storage.itemsize * max(self.depth, 1))
        if self.columns <= room or room == 0:
            yield self
            return
        for first in range(0, self.columns, room):
            count = min(room, self.columns - first)
            dim, b_row = (0, 1) if self.b_row == 1 else (1, count)
            yield replace(self, b=b.part(dim, first, count), columns=count, b_row=b_row, first=first)

    def _uniform_arrays(self, a: Operand, target: Target) -> uniform.UniformProduct | None:
        """How to split the product for a software adapter that loads weights, and perhaps a, from uniform
        arrays."""
        is_plain = not (self.a_by_columns or self.b_layout or self.others) and self.batch == 1
        strides = (self.b_row, self.b_column)
        is_along = strides == (1, self.depth)  # a single column has strides of 1 both ways
        if not is_plain or not (is_along or strides == (self.columns, 1)):
            return None
        return uniform.choose(target, a, self.b, self.rows, is_along)

    def _by_uniform_arrays(self, arrays: uniform.UniformProduct) -> Iterator[Dispatch]:
        parts = arrays.depth.launches
        parameters = self._parameters(parts, arrays.span) | arrays.overrides
        sums = Scratch(parts * self._count)
        ending = self._ending() if parts == 1 else {"partial": sums, "pitch": self.columns}
        for launch in arrays.launches():
            launch["first"] += self.first if parts == 1 else 0
            yield Dispatch(kernel("matmul_uniform"), **{**parameters, **ending, **launch})
        if parts > 1:
            yield self._merge(sums, parts, arrays.span)

    def _launches(self, target: Target) -> Iterator[Dispatch]:
        """By the kernel that suits the shape and the device, in parts where the product is deep or small."""
        choice = self._choose_kernel(target)
        unit = choice.unit
        parts, steps = split(-(-self.depth // unit), max(1, choice.span_max // unit))
        launch: dict[str, Any] = {
            "a": self.a,
            "b": self.b,
            "A_ALONG": not self.a_by_columns,
            "B_ALONG": self.b_row == 1,
            **self.b_layout,
            **choice.overrides,
            **self._parameters(parts, steps * unit),
            **choice.grid(target, parts),
        }
        is_tiled = choice.name in ("matmul_tiled", "matmul_matrix")
        if parts == 1:
            yield Dispatch(kernel(choice.name), **launch, **self._ending(by_quads=is_tiled))
            return
        sums, by_quads = Scratch(parts * self._count), is_tiled and divides(4, self.columns)
        partial: dict[str, Any] = {"partial": sums, "first": 0, "pitch": self.columns, "BY_QUADS": by_quads}
        yield Dispatch(kernel(choice.name), **launch, **partial)
        yield self._merge(sums, parts, steps * unit, by_quads=by_quads and parts <= PARTS_MAX)

    def _merge(self, sums: Scratch, parts: AnyInt, span: AnyInt, *, by_quads: bool = False) -> Dispatch:
        """The sums of all parts, finished."""
        ending = self._ending(by_quads=by_quads)
        return Dispatch(
            kernel("matmul_merge"),
            PARTS=parts,
            sums=sums,
            **self._parameters(1, span),
            **ending,
            threads=self._count // 4 if ending["BY_QUADS"] else self._count,
        )

    def _ending(self, *, by_quads: bool = False) -> dict[str, Any]:
        """What a launch that finishes sums binds, where its columns begin, and what it does with sums; with
        `by_quads`, quads of columns where they are whole."""
        outputs = dict(zip(("out", "out_b", "out_c"), (self.out, *self.others), strict=False))
        widths = [each.shape[-1] for each in (self.out, *self.others)]
        quads = (*widths, self.columns, self.first)
        return {
            **outputs,
            **({"OTHERS": sum(widths[1:]), "WIDTH_B": widths[1]} if self.others else {}),
            "bias": self.bias,
            "addend": self.addend,
            "activation": ACTIVATIONS.get(self.activation),
            "BY_QUADS": by_quads and all(divides(4, count) for count in quads),
            "first": self.first,
            "pitch": self.out.shape[-1],
        }

    def _parameters(self, parts: AnyInt, span: AnyInt) -> dict[str, Any]:
        pitch = self.out.shape[-1]
        bias_strides: LiveShape = (0, 1)
        if isinstance(self.bias, Operand):
            bias_strides = broadcast_strides(self.bias.shape, (self.rows, pitch))
        return {
            "batch": self.batch,
            "rows": self.rows,
            "columns": self.columns,
            "depth": self.depth,
            "parts": parts,
            "span": span,
            "b_row": self.b_row,
            "b_column": self.b_column,
            "alpha": self.alpha,
            "beta": self.beta,
            "bias_row": bias_strides[0],
            "bias_column": bias_strides[1],
            "first_row": 0,
            "part": 0,
            "blocks": 0,
        }

    def _choose_kernel(self, target: Target) -> _KernelChoice:
        """The kernel that suits the shape and the device."""
        is_few, is_along = self.rows <= ROWS_FEW, self.b_row == 1
        if target.is_cpu:
            is_whole = is_along and self.b_column == self.depth and divides(4, self.depth)
            return self._by_threads(by_quads=is_whole and not self.a_by_columns and not self.b_layout)
        if is_few and is_along:
            return self._matvec(target)
        if self.depth and (not is_few or self.batch == 1):  # tiles load at least once
            return self._tiled(target)
        return self._by_threads(by_quads=False)

    def _by_threads(self, *, by_quads: bool) -> _KernelChoice:
        """Invocations that work alone; `by_quads`: rows of both factors are whole quads, loaded at once."""
        tile = min(8, bucket(self.rows) if isinstance(self.rows, LiveInt) else max(self.rows, 1))
        strips = self.batch * -(-self.rows // tile) * -(-self.columns // 8)
        quads = {"A_QUADS": by_quads, "B_QUADS": by_quads, "IS_WHOLE": by_quads}
        unit = 4 if by_quads else 1
        return _KernelChoice("matmul_thread", {"TILE": tile, **quads}, WALK_MAX, unit=unit, threads=strips)

    def _matvec(self, target: Target) -> _KernelChoice:
        """A few rows: as many invocations as keep a GPU busy, then more columns for each of them."""
        columns = self.batch * self.columns
        lanes = SUBGROUP if target.subgroup_size == SUBGROUP else 1
        while lanes < LANES_MAX and 4 * lanes < self.depth and (lanes < SUBGROUP or lanes * columns < BUSY):
            lanes *= 2
        wide = 1
        while wide < QUADS_MAX and lanes * columns >= 2 * wide * BUSY:
            wide *= 2
        steps = QUADS_MAX // wide
        while steps > 1 and not divides(4 * lanes * steps, self.depth):
            steps //= 2
        tall = 1 << (max(self.rows, 1) - 1).bit_length()
        overrides = {
            "TALL": tall,
            "WIDE": wide,
            "STEPS": steps,
            "IS_WHOLE": divides(4, self.depth),
            **shared_rows(target, lanes, max(1, WORKGROUP // lanes)),
            **self._quads(),
        }
        strips = self.batch * -(-self.columns // wide)
        unit = 4 * lanes * steps
        return _KernelChoice("matvec", overrides, MATVEC_WALK_MAX * lanes, unit=unit, rows=strips)

    def _quads(self) -> dict[str, bool]:
        """Whether quads of both factors are one load each."""
        is_along = self.b_row == 1
        b_strides = (1, self.depth) if is_along else (self.columns, 1)
        b_length = self.depth if is_along else self.columns
        is_plain = not (self.b_layout or (self.b_row, self.b_column) != b_strides)
        return {
            "A_QUADS": not self.a_by_columns and divides(4, self.depth) and "SHARE" not in self.b_layout,
            "B_QUADS": is_plain and divides(4, b_length),
        }

    def _tiled(self, target: Target) -> _KernelChoice:
        matrices = () if self.a_by_columns or self.b_layout else self._matrix_tiles(target)
        sizes = self.rows, self.columns, self.depth
        tile, parts = choose((*TILES["matmul_tiled"], *matrices), target, *sizes, 1, batch=self.batch)
        is_matrix = isinstance(tile, MatrixTile)
        overrides = {
            **tile.declarations,
            **(factor_declarations(self.a, self.b) if is_matrix else {}),
            **self._quads(),
            "IS_WHOLE": divides(tile.step, self.depth),
        }
        name = "matmul_matrix" if is_matrix else "matmul_tiled"
        tiles = self.batch * tile.count(self.rows, self.columns)
        span = -(-self.depth // (parts * tile.step)) * tile.step
        return _KernelChoice(name, overrides, span, unit=tile.step, groups=tiles)

    def _matrix_tiles(self, target: Target) -> tuple[MatrixTile, ...]:
        """Tiles for matrix cores, if the device has them and the product is large enough."""
        if not target.has_matrices or self.rows < MATRIX_ROWS_MIN:
            return ()
        planes = planes_of(target, self.a.storage), planes_of(target, self.b.storage)
        return matrix_tiles(MATRIX_TILES["matmul_matrix"], target, planes, is_along=self.b_row == 1)
