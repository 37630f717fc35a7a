"""Operators that depend on the position, which differs per row: RoPE, KV cache, attention.

They become operators of families/batched_rows, which read it from the builder's `places`.
"""

from __future__ import annotations

from pteron.graph import Node, SymInt, Tensor, Value, ValueList
from pteron.graph.values import tensors
from pteron.passes.batched.builder import BatchedGraphBuilder, Live, NotBatchableError
from pteron.passes.batched.rule import along, dim_of, leads, refuse_unless, rule, shape_of


@rule("aten.slice_copy.Tensor")
def slice_copy(walk: BatchedGraphBuilder, node: Node) -> None:
    """A slice of columns, the last step, or the rows of a table from the position on."""
    x, at, start, end, step, output = node.args
    assert isinstance(x, Tensor)
    assert isinstance(output, Tensor)
    dim = dim_of(at, len(x.shape_max))
    if not walk.has_rows(x):
        spans = walk.is_position(start) and walk.is_position(end, Live.END)
        refuse_unless(spans and (dim, step) == (0, 1) and walk.is_fixed(x), "it takes the position")
        walk.from_position[output.id] = x
    elif dim != walk.row_dim(x):
        along(walk, node)
    else:
        is_last = start == -1 and (end is None or (isinstance(end, int) and end >= x.shape_max[dim]))
        refuse_unless(is_last and step == 1, "it takes some steps of all")
        made = walk.give_rows(output, dim)
        walk.emit("aten.clone.default", walk.now(x), None, made)


@rule("aten.index.Tensor")
def index(walk: BatchedGraphBuilder, node: Node) -> None:
    """Rows of a table at the position, in graphs that decode one step at a time."""
    x, picked, output = node.args
    assert isinstance(x, Tensor)
    assert isinstance(output, Tensor)
    by_position = tensors(picked) == walk.graph.inputs[1:]
    refuse_unless(by_position and walk.is_fixed(x), "it picks by more than the position")
    walk.from_position[output.id] = x


# Live integers ------------------------------------------------------------------------------------


@rule("sym_size.int")
def size(walk: BatchedGraphBuilder, node: Node) -> None:
    """The number of steps becomes the number of rows; other sizes stay."""
    x, at, output = node.args
    assert isinstance(output, SymInt)
    if walk.has_rows(x) and dim_of(at, len(shape_of(x))) == walk.row_dim(x):
        walk.symbols[output.id] = Live.STEPS
    walk.keep(node)


@rule("et_vk.select_as_symint.default")
def source(walk: BatchedGraphBuilder, node: Node) -> None:
    """The position itself."""
    x, *_, output = node.args
    refuse_unless(x is walk.graph.inputs[1], "it reads an integer that is not the position")
    assert isinstance(output, SymInt)
    walk.symbols[output.id] = Live.POSITION


@rule("add", "sub", "mul", "floordiv")
def arithmetic(walk: BatchedGraphBuilder, node: Node) -> None:
    """Classify a number made of the position: the end of the steps, or something else."""
    a, b, output = node.args
    assert isinstance(output, SymInt)
    kinds = {walk.symbols.get(value.id) for value in (a, b) if isinstance(value, SymInt)}
    by_one = walk.steps_max == 1 and 1 in (a, b) and kinds == {Live.POSITION}
    if node.name == "add" and (kinds == {Live.POSITION, Live.STEPS} or by_one):
        walk.symbols[output.id] = Live.END
    elif kinds <= {None, Live.STEPS}:
        walk.keep(node)
    else:
        walk.symbols[output.id] = Live.OTHER


# Rotations and attention --------------------------------------------------------------------------


@rule("et_vk.apply_rotary_emb.default")
def rope(walk: BatchedGraphBuilder, node: Node) -> None:
    xq, xk, cosines, sines, outputs = node.args
    tables = [
        walk.from_position.get(each.id) if isinstance(each, Tensor) else None for each in (cosines, sines)
    ]
    _rotate(walk, (xq, xk), tables, "neighbours", outputs)


@rule("et_vk.apply_rotary_emb_hf.default")
def rope_hf(walk: BatchedGraphBuilder, node: Node) -> None:
    xq, xk, cosines, sines, start, outputs = node.args
    refuse_unless(walk.is_position(start), "it rotates by more than the position")
    fixed = [each if isinstance(each, Tensor) and walk.is_fixed(each) else None for each in (cosines, sines)]
    _rotate(walk, (xq, xk), fixed, "halves", outputs)


def _rotate(
    walk: BatchedGraphBuilder, x: tuple[Value, Value], tables: list[Tensor | None], form: str, outputs: Value
) -> None:
    cosines, sines = tables
    if cosines is None or sines is None:
        raise NotBatchableError("its angles are not rows of tables from the position on")
    key = cosines.id, sines.id
    if key not in walk.angles:
        made = walk.new(cosines.dtype, (walk.slots, 2 * cosines.shape_max[1]))
        walk.emit("pteron.row_angles", cosines, sines, walk.places, made)
        walk.angles[key] = made
    rotated = [
        walk.give_rows(output, leads(walk, each)) for output, each in zip(tensors(outputs), x, strict=True)
    ]
    results = ValueList(walk.new_id(), tuple(rotated))
    walk.emit("pteron.rope_rows", *map(walk.now, x), walk.angles[key], form, results)


@rule("sdpa_with_kv_cache.default")
def attention(walk: BatchedGraphBuilder, node: Node) -> None:
    """Each row attends to the keys of its own slot, up to its own position."""
    query, key, value, key_cache, value_cache, start, _, mask, _, _, scale, output = node.args
    refuse_unless(walk.is_position(start), "it attends from more than the position")
    refuse_unless(mask is None, "it takes a mask, whose rows are those of one sequence")
    dims = {leads(walk, each) for each in (query, key, value)}
    heads = all(len(shape_of(each)) - 3 == dim for each in (query, key, value) for dim in dims)
    refuse_unless(len(dims) == 1 and heads, "its rows are not [rows, heads, width]")
    assert isinstance(output, Tensor)
    made = walk.give_rows(output, dims.pop())
    caches = [walk.caches[_id(each)] for each in (key_cache, value_cache)]
    given = [walk.now(each) for each in (query, key, value)]
    walk.emit("pteron.attend_rows", *given, *caches, walk.places, walk.context, scale, made)


def _id(value: Value) -> int:
    assert isinstance(value, Tensor)
    return value.id
