"""Rotary position embeddings (RoPE), in the three forms that exporters emit, or by slices of tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pteron.families.rope.rotate import Rotation, rotate
from pteron.graph import Tensor, Value
from pteron.ops import OPERATORS, Call, Dispatch, LiveShape, Operand, define, op, require, same_shape
from pteron.ops.rewrite import Flow, Replacement, rewrite


def _both_shapes(xq: Operand, xk: Operand, *_: object) -> tuple[LiveShape, LiveShape]:
    require(xq.rank == 4 and xk.rank == 4, "queries and keys are [batch, steps, heads, width]", xq, xk)
    require(xq.shape[1] == xk.shape[1], "queries and keys must have the same steps", xq, xk)
    return xq.shape, xk.shape


def rotation(name: str, form: str, positions: str = "") -> None:
    """An operator that rotates queries and keys by tables of cosines and sines, from row `start` on."""

    def dispatches(
        xq: Operand, xk: Operand, cosines: Operand, sines: Operand, *rest: Any
    ) -> Iterator[Dispatch]:
        *bounds, xq_out, xk_out = rest
        by_query, by_key = map(Rotation(form, cosines, sines, *bounds).angles, (xq, xk))
        if (xq.shape[0], xq.shape[3]) == (xk.shape[0], xk.shape[3]):
            yield rotate(by_query, xq, xq_out, xk, xk_out)
        else:  # batches or widths differ
            yield rotate(by_query, xq, xq_out)
            yield rotate(by_key, xk, xk_out)

    signature = f"xq xk freqs_cos freqs_sin {positions} -> xq_out xk_out"
    define(name, signature, shape=_both_shapes, compute=dispatches)


rotation("et_vk.apply_rotary_emb.default", "neighbours")
rotation("et_vk.apply_rotary_emb_hf.default", "halves", "start_pos:int")
# et_vk.apply_rotary_emb by rows [start, end) of longer tables.
rotation("pteron.rope_slice", "neighbours", "start:int? end:int?")


@op("et_vk.apply_rotary_emb_interleaved.default", "x freqs_cis -> out", shape=same_shape)
def rope_interleaved(x: Operand, freqs_cis: Operand, out: Operand) -> Iterator[Dispatch]:
    require(x.rank >= 2 and x.shape[-1] % 2 == 0, "x must be [..., steps, width], width even", x)
    steps, width = x.shape[-2:]
    if x.numel:
        shape = (x.numel // (steps * width), 1, steps, width)  # the rows of one step, as if they were heads
        x, out = replace(x, shape=shape), replace(out, shape=shape)
        yield rotate(Rotation("pairs", freqs_cis, None).angles(x), x, out)


@rewrite("rope_slice")
def read_tables_in_place(flow: Flow) -> Iterator[Replacement]:
    """Read the rows of sliced tables in place, without the slice."""
    for call in flow.of("et_vk.apply_rotary_emb.default"):
        xq, xk, *tables = call.inputs
        cosines, sines = (_sliced(flow, table) for table in tables)
        if cosines and sines and cosines[1:] == sines[1:] and _are_alike(flow, cosines[0], sines[0]):
            inputs = (xq, xk, cosines[0], sines[0], *cosines[1:])
            new = Call(call.node, OPERATORS["pteron.rope_slice"], inputs, call.outputs)
            yield Replacement((call,), new)


def _are_alike(flow: Flow, *tables: Value) -> bool:
    """Whether tables are constants of one shape, so that a slice takes the same rows of each."""
    shapes = [
        table.shape_max
        for table in tables
        if isinstance(table, Tensor) and (table.constant or flow.maker(table, "et_vk.prepack.default"))
    ]
    return len(shapes) == len(tables) and len(set(shapes)) == 1


def _sliced(flow: Flow, rows: Value) -> tuple[Value, Value, Value] | None:
    """(table, start, end) if a value is a slice of rows of a table, or a copy of one."""
    if clone := flow.maker(rows, "aten.clone.default"):
        return _sliced(flow, clone.inputs[0])
    if found := flow.maker(rows, "aten.slice_copy.Tensor"):
        table, dim, start, end, step = found.inputs
        return (table, start, end) if (dim, step) == (0, 1) and flow.is_fixed(table) else None
    return None
