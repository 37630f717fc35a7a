"""Gradients of linear layers: of the weight, and of the input of a layer with 4-bit weights; and 4-bit
requantisation."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.dtypes import DType
from pteron.families.linear.product import Product
from pteron.families.quantized.packing import packed_words
from pteron.ops import AnyInt, Dispatch, LiveShape, Operand, Target, Weight, numel, op, require
from pteron.wgsl import Kernels


def _weight_shape(d_out: Operand, x: Operand) -> LiveShape:
    fits = d_out.rank >= 1 and x.rank >= 1 and _rows(d_out) == _rows(x)
    require(fits, "d_out and x must have the same number of rows", d_out, x)
    return d_out.shape[-1], x.shape[-1]


def _rows(x: Operand) -> AnyInt:
    return numel(x.shape[:-1])


@op("et_vk.linear_dW.default", "d_out x -> out", shape=_weight_shape)
def linear_dw(d_out: Operand, x: Operand, out: Operand, *, target: Target) -> Iterator[Dispatch]:
    """out = d_outᵀ · x, over the rows of both."""
    (rows, columns), depth = out.shape, _rows(x)
    product = Product(d_out, x, out, rows, columns, depth, b_row=columns, b_column=1, a_by_columns=True)
    yield from product.dispatches(target)


def _input_shape(d_out: Operand, weights: Operand, *_: object) -> LiveShape:
    fits = d_out.rank >= 1 and weights.rank == 2 and d_out.shape[-1] == weights.shape[0]
    require(fits, "d_out must have one column per row of the 4-bit weights", d_out, weights)
    return (*d_out.shape[:-1], 2 * weights.shape[1])


@op(
    "et_vk.linear_q4gsw_backward.default",
    "d_out weights weight_scales group_size:int -> out",
    shape=_input_shape,
)
def linear_q4gsw_backward(
    d_out: Operand, weights: Operand, scales: Operand, group_size: AnyInt, out: Operand, *, target: Target
) -> Iterator[Dispatch]:
    """out = d_out · W, with the matrix W [n, k] of the weights and scales [k / group, n]."""
    depth, columns, group = weights.shape[0], 2 * weights.shape[1], int(group_size)
    require(weights.dtype in (DType.U8, DType.I8), "4-bit weights must be two to a byte", weights)
    require(group > 0, f"group_size {group} must be positive")
    fits = scales.rank == 2 and scales.shape[0] * group >= columns and scales.shape[1] >= depth
    require(fits, f"scales must be [k / {group}, n]", scales, weights)
    # Constants are packed as for the layer itself, eight weights to a word; other bytes take a word each.
    in_words = isinstance(weights.buffer, Weight) and weights.shape[1] % 4 == 0
    layout = {
        "b": None,
        "b_words": packed_words(weights) if in_words else weights,
        "b_scales": scales,
        "NIBBLES": 8 if in_words else 2,
        "PITCH": weights.shape[1] // 4 if in_words else weights.shape[1],
        "GROUP": group,
        "SCALES_PITCH": scales.shape[1],
    }
    yield from Product(
        d_out,
        weights,
        out,
        rows=out.numel // columns if columns else 0,
        columns=columns,
        depth=depth,
        b_row=columns,
        b_column=1,
        b_layout=layout,
    ).dispatches(target)


kernel = Kernels(__name__)


def _packed_shape(latent: Operand, *_: object) -> LiveShape:
    require(latent.rank == 2, "weights must have two dims", latent)
    return latent.shape[0], -(-latent.shape[1] // 2)


@op("et_vk.q4gsw_requant.default", "latent scales group_size:int -> out", shape=_packed_shape)
def q4gsw_requant(latent: Operand, scales: Operand, group_size: AnyInt, out: Operand) -> Iterator[Dispatch]:
    (rows, columns), group = latent.shape, int(group_size)
    require(group > 0, f"group_size {group} must be positive")
    fits = scales.rank == 2 and scales.shape[0] * group >= columns and scales.shape[1] >= rows
    require(fits, f"scales must be [k / {group}, n]", scales, latent)
    yield Dispatch(
        kernel("q4_requant"),
        latent=latent,
        scales=scales,
        out=out,
        rows=rows,
        columns=columns,
        group=group,
        scales_pitch=scales.shape[1],
        threads=out.numel,
    )
