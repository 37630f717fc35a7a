"""The operators that are one matrix product: linear layers, mm, bmm and addmm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pteron.families.elementwise.binary import apply_binary
from pteron.families.layout.views import view_shape
from pteron.families.linear.product import Product
from pteron.ops import AnyInt, Dispatch, LiveShape, Operand, Target, Weight, numel, op, require
from pteron.ops.operand import joined
from pteron.ops.shapes import broadcast


def _linear_shape(x: Operand, weight: Operand, *_: object) -> LiveShape:
    require(weight.rank == 2, "weight must have two dims", x, weight)
    fits = x.rank >= 1 and x.shape[-1] == weight.shape[1]
    require(fits, "input's last dim must equal weight's second", x, weight)
    return (*x.shape[:-1], weight.shape[0])


@op("aten.linear.default", "input weight bias? -> out", shape=_linear_shape)
def linear(
    x: Operand, weight: Operand, bias: Operand | None, out: Operand, *, target: Target
) -> Iterator[Dispatch]:
    yield from _layer(x, weight, bias, out).dispatches(target)


def _layer(x: Operand, weight: Operand, bias: Operand | None, out: Operand, **ending: Any) -> Product:
    """The product of a linear layer, with what ends it; `out` has a column for each row of the weight."""
    columns, depth = weight.shape
    require(bias is None or bias.numel == columns, "bias must have one value per row of weight", weight, bias)
    rows = out.numel // columns if columns else 0
    return Product(x, weight, out, rows, columns, depth, b_row=1, b_column=depth, bias=bias, **ending)


def _shown_shape(x: Operand, weight: Operand, sizes: Sequence[AnyInt] | None) -> LiveShape:
    """The shape of a linear layer's result, as a view with these sizes shows it."""
    shape = _linear_shape(x, weight)
    return shape if sizes is None else view_shape(x.reshaped(shape), sizes)


def _finished_shape(x: Operand, weight: Operand, _bias: Operand | None, *following: Any) -> LiveShape:
    sizes, _, addend = following
    shape = _shown_shape(x, weight, sizes)
    return shape if addend is None else broadcast(shape, addend.shape)


@op("pteron.linear", "input weight bias? sizes:ints? activation:str addend? -> out", shape=_finished_shape)
def finished_linear(
    x: Operand, weight: Operand, bias: Operand | None, *following: Any, target: Target
) -> Iterator[Dispatch]:
    """A linear layer and what follows it: a view with these sizes, an activation, an addend."""
    sizes, activation, addend, out = following
    shape, columns = _shown_shape(x, weight, sizes), weight.shape[0]
    is_alike = addend is None or addend.shape == shape
    made = out if is_alike else out.scratch(shape)
    in_rows = made.reshaped((numel(shape) // columns if columns else 0, columns))
    added = addend if is_alike else None
    yield from _layer(x, weight, bias, in_rows, activation=activation, addend=added).dispatches(target)
    if not is_alike:  # at this call one of the two is broadcast along the other
        yield from apply_binary("a + b", made, addend, out)


def _several_shapes(x: Operand, weights: Sequence[Operand], *_: object) -> list[LiveShape]:
    return [_linear_shape(x, weight) for weight in weights]


@op("pteron.linear_several", "input weights:tensors biases:tensors? -> out:tensors", shape=_several_shapes)
def linear_several(
    x: Operand, weights: Sequence[Operand], biases: Sequence[Operand] | None, *outputs: Any, target: Target
) -> Iterator[Dispatch]:
    """Two or three linear layers of one x, as one product."""
    matrices = [weight.buffer for weight in weights if isinstance(weight.buffer, Weight)]
    vectors = [bias.buffer for bias in biases or () if isinstance(bias.buffer, Weight)]
    columns, depth = sum(weight.shape[0] for weight in weights), weights[0].shape[1]
    bytes_needed = columns * depth * x.storage.itemsize
    is_constant = len(matrices) == len(weights) and len(vectors) == len(biases or ())
    if not is_constant or bytes_needed > target.binding_bytes_max or target.is_cpu:
        for index, (weight, out) in enumerate(zip(weights, outputs, strict=True)):
            yield from linear(x, weight, biases[index] if biases else None, out, target=target)
        return
    first, *others = outputs
    yield from Product(
        x,
        joined(matrices),
        first,
        x.numel // depth if depth else 0,
        columns,
        depth,
        b_row=1,
        b_column=depth,
        bias=joined(vectors) if vectors else None,
        others=tuple(others),
    ).dispatches(target)


def _mm_shape(a: Operand, b: Operand) -> LiveShape:
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


def _bmm_shape(a: Operand, b: Operand) -> LiveShape:
    require(a.rank == 3 and b.rank == 3, "both batches of matrices must have three dims", a, b)
    require(a.shape[0] == b.shape[0], "both batches must be of one size", a, b)
    require(a.shape[2] == b.shape[1], "the first matrices' columns must equal the second's rows", a, b)
    return a.shape[0], a.shape[1], b.shape[2]


@op("aten.bmm.default", "self mat2 -> out", shape=_bmm_shape)
def bmm(a: Operand, b: Operand, out: Operand, *, target: Target) -> Iterator[Dispatch]:
    (batch, rows, depth), columns = a.shape, b.shape[2]
    product = Product(a, b, out, rows, columns, depth, b_row=columns, b_column=1, batch=batch)
    yield from product.dispatches(target)


def _addmm_shape(bias: Operand, a: Operand, b: Operand, *_: object) -> LiveShape:
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
