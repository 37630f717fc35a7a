"""Matrix products: linear layers, mm, bmm and addmm, by one of three kernels chosen from the live shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pteron.graph import Shape
from pteron.ops import Dispatch, Operand, Target, op, require
from pteron.ops.rows import row_groups, row_layout
from pteron.ops.shapes import broadcast, broadcast_strides
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

ROWS_FEW = 4  # up to here a product reads its weights once and is bound by that


@dataclass(frozen=True, slots=True)
class Product:
    """out[z] = alpha · a[z] · b[z] + beta · bias, a row-major, b by its strides."""

    a: Operand
    b: Operand
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

    def dispatch(self, target: Target) -> Dispatch:
        """The product by the kernel that suits its shape and the device."""
        bias_strides = broadcast_strides(self.bias.shape, (self.rows, self.columns)) if self.bias else (0, 0)
        absent = {} if self.bias else {"added": "0.0"}
        arguments: dict[str, Any] = {
            "a": self.a,
            "b": self.b,
            "bias": self.bias,
            "out": self.out,
            "batch": self.batch,
            "rows": self.rows,
            "columns": self.columns,
            "depth": self.depth,
            "b_row": self.b_row,
            "b_column": self.b_column,
            "alpha": self.alpha,
            "beta": self.beta,
            "bias_row": bias_strides[0],
            "bias_column": bias_strides[1],
        }
        if not target.is_cpu and self.rows > ROWS_FEW:
            groups = -(-self.columns // 64), -(-self.rows // 64), self.batch
            return Dispatch(kernel("matmul_tiled", **absent), **arguments, groups=groups)
        if not target.is_cpu and self.b_row == 1:
            layout = row_layout(target, self.out.numel, self.depth)
            groups = row_groups(target, layout, self.out.numel)
            return Dispatch(kernel("matvec", **layout, **absent), **arguments, groups=groups)
        tile = min(4, max(self.rows, 1))
        threads = self.batch * -(-self.rows // tile) * self.columns
        return Dispatch(kernel("matmul_thread", TILE=tile, **absent), **arguments, threads=threads)


def _linear_shape(x: Operand, weight: Operand, *_: object) -> Shape:
    require(x.rank >= 1 and weight.rank == 2 and x.shape[-1] == weight.shape[1], "linear", x, weight)
    return (*x.shape[:-1], weight.shape[0])


@op("aten.linear.default", "input weight bias? -> out", shape=_linear_shape)
def linear(
    x: Operand, weight: Operand, bias: Operand | None, out: Operand, *, target: Target
) -> Iterator[Dispatch]:
    columns, depth = weight.shape
    require(bias is None or bias.numel == columns, "bias must have one value per row of weight", weight, bias)
    rows = out.numel // columns if columns else 0
    yield Product(x, weight, out, rows, columns, depth, b_row=1, b_column=depth, bias=bias).dispatch(target)


def _mm_shape(a: Operand, b: Operand) -> Shape:
    require(a.rank == 2 and b.rank == 2 and a.shape[1] == b.shape[0], "mm", a, b)
    return a.shape[0], b.shape[1]


@op("aten.mm.default", "self mat2 -> out", shape=_mm_shape)
def mm(a: Operand, b: Operand, out: Operand, *, target: Target) -> Iterator[Dispatch]:
    (rows, depth), columns = a.shape, b.shape[1]
    yield Product(a, b, out, rows, columns, depth, b_row=columns, b_column=1).dispatch(target)


def _bmm_shape(a: Operand, b: Operand) -> Shape:
    fits = a.rank == 3 and b.rank == 3 and a.shape[0] == b.shape[0] and a.shape[2] == b.shape[1]
    require(fits, "bmm", a, b)
    return a.shape[0], a.shape[1], b.shape[2]


@op("aten.bmm.default", "self mat2 -> out", shape=_bmm_shape)
def bmm(a: Operand, b: Operand, out: Operand, *, target: Target) -> Iterator[Dispatch]:
    (batch, rows, depth), columns = a.shape, b.shape[2]
    product = Product(a, b, out, rows, columns, depth, b_row=columns, b_column=1, batch=batch)
    yield product.dispatch(target)


def _addmm_shape(bias: Operand, a: Operand, b: Operand, *_: object) -> Shape:
    shape = _mm_shape(a, b)
    require(broadcast(bias.shape, shape) == shape, "addmm", bias, a, b)
    return shape


@op("aten.addmm.default", "self mat1 mat2 beta:number alpha:number -> out", shape=_addmm_shape)
def addmm(
    bias: Operand, a: Operand, b: Operand, beta: float, alpha: float, out: Operand, *, target: Target
) -> Iterator[Dispatch]:
    (rows, depth), columns = a.shape, b.shape[1]
    yield Product(
        a,
        b,
        out,
        rows,
        columns,
        depth,
        b_row=columns,
        b_column=1,
        bias=bias if beta != 0 else None,  # what is multiplied by zero is not read, NaN or not
        alpha=float(alpha),
        beta=float(beta),
    ).dispatch(target)
