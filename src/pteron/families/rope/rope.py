"""Rotary position embeddings, in the three forms that exporters emit, and read from a table in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pteron.families.rope.rotate import Angles, angles, rotate
from pteron.graph import Shape, Tensor, Value
from pteron.ops import OPERATORS, AnyInt, Call, Dispatch, Operand, op, require, same_shape
from pteron.ops.rewrite import Flow, Replacement, rewrite


def _both_shapes(xq: Operand, xk: Operand, *_: object) -> tuple[Shape, Shape]:
    require(xq.rank == 4 and xk.rank == 4, "queries and keys are [batch, steps, heads, width]", xq, xk)
    require(xq.shape[1] == xk.shape[1], "queries and keys must have the same steps", xq, xk)
    return xq.shape, xk.shape


def _rotate_both(by: Sequence[Angles], x: Sequence[Operand], out: Sequence[Operand]) -> Iterator[Dispatch]:
    """Queries and keys by their angles: together, unless batches or widths differ."""
    xq, xk = x
    if (xq.shape[0], xq.shape[3]) == (xk.shape[0], xk.shape[3]):
        yield rotate(by[0], xq, out[0], xk, out[1])
    else:
        yield from map(rotate, by, x, out)


@op(
    "et_vk.apply_rotary_emb.default",
    "xq xk freqs_cos freqs_sin -> xq_out xk_out",
    shape=_both_shapes,
)
def rope(
    xq: Operand, xk: Operand, freqs_cos: Operand, freqs_sin: Operand, xq_out: Operand, xk_out: Operand
) -> Iterator[Dispatch]:
    by = [angles("neighbours", x, freqs_cos, freqs_sin) for x in (xq, xk)]
    yield from _rotate_both(by, (xq, xk), (xq_out, xk_out))


@op(
    "et_vk.apply_rotary_emb_hf.default",
    "xq xk freqs_cos freqs_sin start_pos:int -> xq_out xk_out",
    shape=_both_shapes,
)
def rope_hf(
    xq: Operand,
    xk: Operand,
    freqs_cos: Operand,
    freqs_sin: Operand,
    start_pos: AnyInt,
    xq_out: Operand,
    xk_out: Operand,
) -> Iterator[Dispatch]:
    by = [angles("halves", x, freqs_cos, freqs_sin, start_pos) for x in (xq, xk)]
    yield from _rotate_both(by, (xq, xk), (xq_out, xk_out))


@op("et_vk.apply_rotary_emb_interleaved.default", "x freqs_cis -> out", shape=same_shape)
def rope_interleaved(x: Operand, freqs_cis: Operand, out: Operand) -> Iterator[Dispatch]:
    require(x.rank >= 2 and x.shape[-1] % 2 == 0, "x must be [..., steps, width], width even", x)
    steps, width = x.shape[-2:]
    if x.numel:
        shape = (x.numel // (steps * width), 1, steps, width)  # the rows of one step, as if they were heads
        x, out = replace(x, shape=shape), replace(out, shape=shape)
        yield rotate(angles("pairs", x, freqs_cis, None), x, out)


@op(
    "pteron.rope_slice",
    "xq xk freqs_cos freqs_sin start:int? end:int? -> xq_out xk_out",
    shape=_both_shapes,
)
def rope_slice(
    xq: Operand,
    xk: Operand,
    freqs_cos: Operand,
    freqs_sin: Operand,
    start: AnyInt | None,
    end: AnyInt | None,
    xq_out: Operand,
    xk_out: Operand,
) -> Iterator[Dispatch]:
    """et_vk.apply_rotary_emb by rows [start, end) of longer tables."""
    by = [angles("neighbours", x, freqs_cos, freqs_sin, start, end) for x in (xq, xk)]
    yield from _rotate_both(by, (xq, xk), (xq_out, xk_out))


@rewrite("rope_slice")
def read_tables_in_place(flow: Flow) -> Iterator[Replacement]:
    """Rows of the tables that are sliced for a rotation are read where they are."""
    for call in flow.of("et_vk.apply_rotary_emb.default"):
        xq, xk, *tables = call.inputs
        cosines, sines = (_sliced(flow, table) for table in tables)
        if cosines and sines and cosines[1:] == sines[1:] and _are_alike(flow, cosines[0], sines[0]):
            inputs = (xq, xk, cosines[0], sines[0], *cosines[1:])
            new = Call(call.node, OPERATORS["pteron.rope_slice"], inputs, call.outputs)
            yield Replacement((call,), new)


def _are_alike(flow: Flow, *tables: Value) -> bool:
    """Whether tables are constants of one shape, so that a slice has the same rows of all."""
    shapes = [
        table.shape_max
        for table in tables
        if isinstance(table, Tensor) and (table.constant or flow.maker(table, "et_vk.prepack.default"))
    ]
    return len(shapes) == len(tables) and len(set(shapes)) == 1


def _sliced(flow: Flow, rows: Value) -> tuple[Value, Value, Value] | None:
    """(table, start, end) where a value is rows of a table, one after the other, or a copy of them."""
    if clone := flow.maker(rows, "aten.clone.default"):
        return _sliced(flow, clone.inputs[0])
    if found := flow.maker(rows, "aten.slice_copy.Tensor"):
        table, dim, start, end, step = found.inputs
        return (table, start, end) if (dim, step) == (0, 1) and flow.is_fixed(table) else None
    return None
