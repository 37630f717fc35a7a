"""Matrix products: linear layers, mm, bmm and addmm, by one of three kernels chosen from the live shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pteron.graph import Shape
from pteron.ops import Dispatch, Operand, Scratch, Target, Weight, op, require
from pteron.ops.row_layout import WALK_MAX, folded, row_groups, row_layout, split
from pteron.ops.shapes import broadcast, broadcast_strides
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

ROWS_FEW = 4  # up to here a product reads its weights once and is bound by that
TILE_SIDE = 64  # outputs along each side of a tile of matmul_tiled
MATVEC_WALK_MAX = 1024  # products that a lane of matvec adds up one after the other
TILED_DEPTH_MAX = 8192  # of one part by matmul_tiled, where the adapter ends long loops

# What a part of a deep product leaves: its sum alone.
_PARTIAL = {
    "part_of": "slice / params.batch",
    "batch_of": "slice % params.batch",
    "result": "sum",
    "added": "0.0",
}


@dataclass(frozen=True, slots=True)
class Product:
    """out[z] = alpha · a[z] · b[z] + beta · bias, a row-major or (one matrix) column-major, b by its strides
    or as `b_layout`, declarations of the kernels, has it."""

    a: Operand
    b: Operand | Weight
    out: Operand
    rows: int
    columns: int
    depth: int
    b_row: int
    b_column: int
    batch: int = 1
    bias: Operand | None = None
    alpha: float = 1.0
    beta: float = 1.0
    a_by_columns: bool = False
    b_layout: Mapping[str, Any] = field(default_factory=dict)
    b_scales: Operand | None = None
    first: int = 0  # column of out where this product's begin

    @property
    def _count(self) -> int:
        return self.batch * self.rows * self.columns

    def dispatches(self, target: Target) -> Iterator[Dispatch]:
        """The product, in bands of columns where b is a constant too large for one binding."""
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

    def _launches(self, target: Target) -> Iterator[Dispatch]:
        """By the kernel that suits the shape and the device, in parts where the product is deep."""
        name, declarations, span_max = self._kernel(target)
        declarations |= self.b_layout
        if self.a_by_columns:
            declarations["load_a"] = "f32(a[k * params.rows + m])"
        unit = 4 if name == "linear_thread" else 1  # products that stay in one part
        parts, steps = split(self.depth // unit, span_max // unit)
        span = steps * unit
        pitch = self.out.shape[-1]
        bias_strides = broadcast_strides(self.bias.shape, (self.rows, pitch)) if self.bias else (0, 0)
        absent = {} if self.bias else {"added": "0.0"}
        parameters: dict[str, Any] = {
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
        }
        factors: dict[str, Any] = {
            "a": self.a,
            "b": self.b,
            "b_scales": self.b_scales,
            **self._grid(target, name, declarations, parts),
        }
        place: dict[str, Any] = {"first": self.first, "pitch": pitch}
        if parts == 1:
            whole = kernel(name, **declarations, **absent)
            yield Dispatch(whole, bias=self.bias, out=self.out, **factors, **parameters, **place)
            return
        sums = Scratch(parts * self._count)
        part = kernel(name, **declarations, **_PARTIAL)
        yield Dispatch(part, out=sums, **factors, **parameters, first=0, pitch=self.columns)
        yield Dispatch(
            kernel("matmul_merge", **absent),
            sums=sums,
            bias=self.bias,
            out=self.out,
            **parameters,
            **place,
            threads=self._count,
        )

    def _kernel(self, target: Target) -> tuple[str, dict[str, Any], int]:
        """(name, declarations, depth that one of its invocations can take)."""
        if not target.is_cpu and self.rows > ROWS_FEW:
            return "matmul_tiled", {}, TILED_DEPTH_MAX if target.loop_max else max(self.depth, 1)
        if not target.is_cpu and self.b_row == 1:
            layout = row_layout(target, self._count, self.depth)
            return "matvec", layout, MATVEC_WALK_MAX * int(layout["LANES"])
        tile = {"TILE": min(8, max(self.rows, 1))}
        is_along_k = self.b_row == 1 and self.b_column == self.depth and self.depth % 4 == 0
        if target.is_cpu and is_along_k and not self.a_by_columns and not self.b_layout:
            return "linear_thread", tile, WALK_MAX
        return "matmul_thread", tile, WALK_MAX

    def _grid(self, target: Target, name: str, declarations: Mapping[str, Any], parts: int) -> dict[str, Any]:
        if name == "matmul_tiled":
            tiles = -(-self.columns // TILE_SIDE) * -(-self.rows // TILE_SIDE) * self.batch * parts
            return {"groups": folded(target, tiles)}
        if name == "matvec":
            return {"groups": row_groups(target, declarations, self._count * parts)}
        strips = -(-self.columns // 8)  # of matmul_thread and linear_thread
        return {"threads": parts * self.batch * -(-self.rows // declarations["TILE"]) * strips}


def _linear_shape(x: Operand, weight: Operand, *_: object) -> Shape:
    require(weight.rank == 2, "weight must have two dims", x, weight)
    fits = x.rank >= 1 and x.shape[-1] == weight.shape[1]
    require(fits, "input's last dim must equal weight's second", x, weight)
    return (*x.shape[:-1], weight.shape[0])


@op("aten.linear.default", "input weight bias? -> out", shape=_linear_shape)
def linear(
    x: Operand, weight: Operand, bias: Operand | None, out: Operand, *, target: Target
) -> Iterator[Dispatch]:
    columns, depth = weight.shape
    require(bias is None or bias.numel == columns, "bias must have one value per row of weight", weight, bias)
    rows = out.numel // columns if columns else 0
    product = Product(x, weight, out, rows, columns, depth, b_row=1, b_column=depth, bias=bias)
    yield from product.dispatches(target)


def _mm_shape(a: Operand, b: Operand) -> Shape:
    require(a.rank == 2 and b.rank == 2, "both matrices must have two dims", a, b)
    require(a.shape[1] == b.shape[0], "the first matrix's columns must equal the second's rows", a, b)
    return a.shape[0], b.shape[1]


@op("aten.mm.default", "self mat2 -> out", shape=_mm_shape)
def mm(
    a: Operand, b: Operand, out: Operand, bias: Operand | None = None, *, target: Target, **factors: Any
) -> Iterator[Dispatch]:
    (rows, depth), columns = a.shape, b.shape[1]
    product = Product(a, b, out, rows, columns, depth, b_row=columns, b_column=1, bias=bias, **factors)
    yield from product.dispatches(target)


def _bmm_shape(a: Operand, b: Operand) -> Shape:
    require(a.rank == 3 and b.rank == 3, "both batches of matrices must have three dims", a, b)
    require(a.shape[0] == b.shape[0], "both batches must be of one size", a, b)
    require(a.shape[2] == b.shape[1], "the first matrices' columns must equal the second's rows", a, b)
    return a.shape[0], a.shape[1], b.shape[2]


@op("aten.bmm.default", "self mat2 -> out", shape=_bmm_shape)
def bmm(a: Operand, b: Operand, out: Operand, *, target: Target) -> Iterator[Dispatch]:
    (batch, rows, depth), columns = a.shape, b.shape[2]
    product = Product(a, b, out, rows, columns, depth, b_row=columns, b_column=1, batch=batch)
    yield from product.dispatches(target)


def _addmm_shape(bias: Operand, a: Operand, b: Operand, *_: object) -> Shape:
    shape = _mm_shape(a, b)
    fits = broadcast(bias.shape, shape) == shape
    require(fits, f"what is added must broadcast to {list(shape)}", bias, a, b)
    return shape


@op("aten.addmm.default", "self mat1 mat2 beta:number alpha:number -> out", shape=_addmm_shape)
def addmm(
    bias: Operand, a: Operand, b: Operand, beta: float, alpha: float, out: Operand, *, target: Target
) -> Iterator[Dispatch]:
    added = bias if beta != 0 else None  # a bias times zero is not read: it may have NaNs
    yield from mm(a, b, out, added, target=target, alpha=float(alpha), beta=float(beta))
