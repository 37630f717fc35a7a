"""Operators that depend on the position, which differs per row: RoPE, KV cache, attention, recurrences.

They become operators of families/batched_rows, which read it from the builder's `places`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pteron.families.recurrent.recurrence import RECURRENT
from pteron.graph import Node, SymInt, Tensor, Value, ValueList
from pteron.graph.values import tensors
from pteron.passes.batched.builder import (
    BatchedGraphBuilder,
    Live,
    NotBatchableError,
    dim_of,
    refuse_unless,
    rule,
    shape_of,
)


@rule("aten.slice_copy.Tensor")
def slice_copy(builder: BatchedGraphBuilder, node: Node) -> None:
    """A slice of columns, the last step, or the rows of a table from the position on."""
    x, at, start, end, step, output = node.args
    assert isinstance(x, Tensor)
    dim = dim_of(at, len(x.shape_max))
    if not builder.has_rows(x):
        spans = builder.is_position(start) and builder.is_position(end, Live.END)
        refuse_unless(spans and (dim, step) == (0, 1) and builder.is_fixed(x), "it takes the position")
        builder.from_position[id_of(output)] = x
    elif dim != builder.row_dim(x):
        builder.keep_dim(node)
    else:
        is_last = start == -1 and (end is None or (isinstance(end, int) and end >= x.shape_max[dim]))
        refuse_unless(is_last and step == 1, "it takes some steps of all")
        made = builder.give_rows(output, dim)
        builder.emit("aten.clone.default", builder.now(x), None, made)


@rule("aten.index.Tensor")
def index(builder: BatchedGraphBuilder, node: Node) -> None:
    """Rows of a table at the position, in graphs that decode one step at a time."""
    x, picked, output = node.args
    assert isinstance(x, Tensor)
    by_position = tensors(picked) == builder.graph.inputs[1:]
    refuse_unless(by_position and builder.is_fixed(x), "it picks by more than the position")
    builder.from_position[id_of(output)] = x


# Live integers ------------------------------------------------------------------------------------


@rule("sym_size.int")
def size(builder: BatchedGraphBuilder, node: Node) -> None:
    """The number of steps becomes the number of rows; other sizes stay."""
    x, at, output = node.args
    if builder.has_rows(x) and dim_of(at, len(shape_of(x))) == builder.row_dim(x):
        builder.symbols[id_of(output)] = Live.STEPS
    builder.keep(node)


@rule("et_vk.select_as_symint.default")
def source(builder: BatchedGraphBuilder, node: Node) -> None:
    """The position itself."""
    x, *_, output = node.args
    refuse_unless(x is builder.graph.inputs[1], "it reads an integer that is not the position")
    builder.symbols[id_of(output)] = Live.POSITION


@rule("add", "sub", "mul", "floordiv")
def arithmetic(builder: BatchedGraphBuilder, node: Node) -> None:
    """Classify a number made of the position: the end of the steps, or something else."""
    a, b, output = node.args
    kinds = {builder.symbols.get(value.id) for value in (a, b) if isinstance(value, SymInt)}
    by_one = builder.steps_max == 1 and 1 in (a, b) and kinds == {Live.POSITION}
    if node.name == "add" and (kinds == {Live.POSITION, Live.STEPS} or by_one):
        builder.symbols[id_of(output)] = Live.END
    elif kinds <= {None, Live.STEPS}:
        builder.keep(node)
    else:
        builder.symbols[id_of(output)] = Live.OTHER


# Rotations and attention --------------------------------------------------------------------------


@rule("et_vk.apply_rotary_emb.default")
def rope(builder: BatchedGraphBuilder, node: Node) -> None:
    xq, xk, cosines, sines, outputs = node.args
    tables = [builder.from_position.get(id_of(each)) for each in (cosines, sines)]
    _rotate(builder, (xq, xk), tables, "neighbours", outputs)


@rule("et_vk.apply_rotary_emb_hf.default")
def rope_hf(builder: BatchedGraphBuilder, node: Node) -> None:
    xq, xk, cosines, sines, start, outputs = node.args
    refuse_unless(builder.is_position(start), "it rotates by more than the position")
    fixed = [
        each if isinstance(each, Tensor) and builder.is_fixed(each) else None for each in (cosines, sines)
    ]
    _rotate(builder, (xq, xk), fixed, "halves", outputs)


def _rotate(
    builder: BatchedGraphBuilder,
    x: tuple[Value, Value],
    tables: list[Tensor | None],
    form: str,
    outputs: Value,
) -> None:
    cosines, sines = tables
    if cosines is None or sines is None or not len(cosines.shape_max) == len(sines.shape_max) == 2:
        raise NotBatchableError("its angles are not rows of tables from the position on")
    key = cosines.id, sines.id
    if key not in builder.angles:
        made = builder.new(cosines.dtype, (builder.slots, 2 * cosines.shape_max[1]))
        builder.emit("pteron.row_angles", cosines, sines, builder.places, made)
        builder.angles[key] = made
    rotated = [
        builder.give_rows(output, builder.leading_dim(each))
        for output, each in zip(tensors(outputs), x, strict=True)
    ]
    results = ValueList(builder.new_id(), tuple(rotated))
    builder.emit("pteron.rope_rows", *map(builder.now, x), builder.angles[key], form, results)


@rule("sdpa_with_kv_cache.default")
def attention(builder: BatchedGraphBuilder, node: Node) -> None:
    """Each row attends to the keys of its own slot, up to its own position."""
    query, key, value, key_cache, value_cache, start, _, mask, _, _, scale, output = node.args
    refuse_unless(mask is None, "it takes a mask, whose rows are those of one sequence")
    new, caches = (query, key, value), (key_cache, value_cache)
    _attend(builder, new, caches, start, (scale, None, None, None, None, None), output)


@rule("pteron.attention.default")
def attention_with_options(builder: BatchedGraphBuilder, node: Node) -> None:
    query, key, value, key_cache, value_cache, start, *options, output = node.args
    refuse_unless(all(map(builder.is_fixed, options)), "its sinks or slopes differ from row to row")
    _attend(builder, (query, key, value), (key_cache, value_cache), start, options, output)


def _attend(
    builder: BatchedGraphBuilder,
    new: tuple[Value, ...],
    caches: tuple[Value, ...],
    start: Value,
    options: Sequence[Value],
    output: Value,
) -> None:
    """Queries, keys and values of rows over caches; values and their cache may be None."""
    refuse_unless(builder.is_position(start), "it attends from more than the position")
    given = [each for each in new if each is not None]
    dims = {builder.leading_dim(each) for each in given}
    heads = all(len(shape_of(each)) - 3 == dim for each in given for dim in dims)
    refuse_unless(len(dims) == 1 and heads, "its rows are not [rows, heads, width]")
    made = builder.give_rows(output, dims.pop())
    rows = [each and builder.now(each) for each in new]
    slots = [each and builder.caches[id_of(each)] for each in caches]
    builder.emit("pteron.attend_rows", *rows, *slots, builder.places, builder.context, *options, made)


@rule(*RECURRENT)
def recurrence(builder: BatchedGraphBuilder, node: Node) -> None:
    """Each row is a step of its own sequence, with the state of its slot."""
    *inputs, state, start, output = node.args
    refuse_unless(builder.is_position(start), "it starts at another position than the call")
    by_row = [value for value in inputs if builder.has_rows(value)]
    others = [value for value in inputs if not builder.has_rows(value)]
    dims = {builder.leading_dim(value) for value in by_row}
    fits = len(dims) == 1 and all(map(builder.is_fixed, others))
    refuse_unless(fits, "its weights differ from row to row")
    made, name = builder.give_rows(output, dims.pop()), node.name.removesuffix(".default")
    rows = map(builder.now, inputs)
    builder.emit(f"{name}_rows", *rows, builder.caches[id_of(state)], builder.places, made)


def id_of(value: Value) -> int:
    assert isinstance(value, (Tensor, SymInt))
    return value.id
