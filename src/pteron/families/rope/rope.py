"""Rotary position embeddings (RoPE), in the three forms that exporters emit, or by slices of tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pteron.families.layout.copy import copy_strided
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
        if cosines.rank > 2 or sines.rank > 2:
            cosines, sines, is_by_batch = _by_step(xq, cosines, sines)
            if is_by_batch:  # then batches are steps
                xq, xk, xq_out, xk_out = map(_in_one_batch, (xq, xk, xq_out, xk_out))
            if cosines.rank != sines.rank:
                flat, full = sorted((cosines, sines), key=lambda table: table.rank)
                expanded = flat.scratch(full.shape)
                yield copy_strided(flat, expanded, full.shape, (flat.shape[1], 0, 1), expanded.strides)
                cosines, sines = (expanded if table is flat else table for table in (cosines, sines))
        by_query, by_key = map(Rotation(form, cosines, sines, *bounds).angles, (xq, xk))
        if (xq.shape[0], xq.shape[3]) == (xk.shape[0], xk.shape[3]):
            yield rotate(by_query, xq, xq_out, xk, xk_out)
        else:  # batches or widths differ
            yield rotate(by_query, xq, xq_out)
            yield rotate(by_key, xk, xk_out)

    # Without bounds, tables may be in all shapes that broadcast to [batch, steps, heads, width / 2].
    signature = f"xq xk freqs_cos freqs_sin {positions} -> xq_out xk_out"
    define(name, signature, shape=_both_shapes, compute=dispatches)


def _by_step(x: Operand, *tables: Operand) -> tuple[Operand, Operand, bool]:
    """Cosines and sines as [rows, columns] or [rows, heads, columns], and whether rows are those of all
    batches. Where sizes are equal, 3 dims are [steps, heads, columns]."""
    batch, steps, heads, _ = x.shape
    found: list[Operand] = []
    by_batch = set[bool]()
    for table in tables:
        *rows, columns = table.shape
        if len(rows) == 1 or (len(rows) == 2 and rows[0] == steps and rows[1] in (1, heads)):
            rows = [1, *rows]
        of_batch, of_step, of_head = (*rows, 1)[:3]
        fits = len(rows) <= 3 and of_batch in (1, batch) and of_step == steps and of_head in (1, heads)
        require(fits, "cos and sin must broadcast to [batch, steps, heads, width / 2]", x, *tables)
        lines = of_batch * of_step
        found.append(table.reshaped((lines, columns) if of_head == 1 else (lines, of_head, columns)))
        by_batch.add(of_batch != 1)
    require(len(by_batch) == 1, "cos and sin must both be by batch, or neither", x, *tables)
    return found[0], found[1], by_batch.pop()


def _in_one_batch(x: Operand) -> Operand:
    return x.reshaped((1, x.shape[0] * x.shape[1], *x.shape[2:]))


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
    """Whether tables are constant matrices of one shape, so that a slice takes the same rows of each."""
    shapes = [
        table.shape_max
        for table in tables
        if isinstance(table, Tensor) and (table.constant or flow.maker(table, "et_vk.prepack.default"))
    ]
    return len(shapes) == len(tables) and len(set(shapes)) == 1 and len(shapes[0]) == 2


def _sliced(flow: Flow, rows: Value) -> tuple[Value, Value, Value] | None:
    """(table, start, end) if a value is a slice of rows of a table, or a copy of one."""
    if clone := flow.maker(rows, "aten.clone.default"):
        return _sliced(flow, clone.inputs[0])
    if found := flow.maker(rows, "aten.slice_copy.Tensor"):
        table, dim, start, end, step = found.inputs
        return (table, start, end) if (dim, step) == (0, 1) and flow.is_fixed(table) else None
    return None
