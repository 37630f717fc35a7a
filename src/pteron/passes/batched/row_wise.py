"""Operators that process every row independently, and those that reshape rows.

They stay as they are, for more rows. Every row is a last step, so selecting the last step selects all rows.
"""

from __future__ import annotations

from functools import partial

from pteron.graph import Node, SymInt, Tensor, Value, ValueList
from pteron.graph.values import Item, tensors
from pteron.ops import OPERATORS, Operator
from pteron.passes.batched.builder import BatchedGraphBuilder, Live, dim_of, refuse_unless, rule, shape_of


def _module(operator: Operator) -> str:
    """The module of an operator's function."""
    function = operator.compute
    while isinstance(function, partial):
        function = function.func
    return function.__module__


# Element by element -------------------------------------------------------------------------------

_ELEMENTWISE = [
    name for name, operator in OPERATORS.items() if "pteron.families.elementwise" in _module(operator)
]


@rule(*_ELEMENTWISE)
def elementwise(builder: BatchedGraphBuilder, node: Node) -> None:
    """Broadcasting aligns last dims: rows combine with rows, or with values shared by all rows."""
    *inputs, output = node.args
    given = [value for argument in inputs for value in tensors(argument)]
    for each in given:
        if each.id in builder.from_position:
            builder.gather(each)
    from_end = {len(each.shape_max) - builder.rows[each.id] for each in given if each.id in builder.rows}
    refuse_unless(len(from_end) == 1, "rows are in different dims of its operands")
    (back,) = from_end
    for each in given:
        is_plain = each.id in builder.rows or len(each.shape_max) < back or each.shape_max[-back] == 1
        refuse_unless(is_plain, f"{each} has a value for every step")
    builder.keep(node, len(shape_of(output)) - back)


# Row by row ---------------------------------------------------------------------------------------


@rule("et_vk.rms_norm.default")
def norm(builder: BatchedGraphBuilder, node: Node) -> None:
    x, weight, *_ = node.args
    inner = len(shape_of(x)) - len(shape_of(weight))
    refuse_unless(builder.row_dim(x) < inner and builder.is_fixed(weight), "it norms over rows")
    builder.keep_dim(node)


@rule("aten.native_layer_norm.default")
def layer_norm(builder: BatchedGraphBuilder, node: Node) -> None:
    x, shape, *rest = node.args
    dims = len(shape.items) if isinstance(shape, ValueList) else len(shape) if isinstance(shape, tuple) else 0
    fixed = all(builder.is_fixed(value) for value in rest[:2])
    refuse_unless(builder.row_dim(x) < len(shape_of(x)) - dims and fixed, "it norms over rows")
    builder.keep_dim(node)


@rule("aten.linear.default", "et_vk.linear_q4gsw.default", "et_vk.linear_q8ta_q8csw.default")
@rule("pteron.linear_q8gsw.default")
@rule("et_vk.linear_dq8ca_q4gsw.default", "aten.mm.default", "aten._weight_int8pack_mm.default")
def linear(builder: BatchedGraphBuilder, node: Node) -> None:
    """x, quantisation parameters of its rows, and weights shared by all rows."""
    x, *rest, _ = node.args
    dim = builder.row_dim(x)
    refuse_unless(dim < len(shape_of(x)) - 1, "it adds rows up")
    by_row = [value for value in rest if builder.has_rows(value)]
    beside = all(builder.row_dim(value) == dim for value in by_row)
    others = [value for value in rest if value not in by_row]
    refuse_unless(beside and all(map(builder.is_fixed, others)), "its weights differ from row to row")
    refuse_unless(not by_row or node.name == "et_vk.linear_dq8ca_q4gsw.default", "it multiplies rows by rows")
    builder.keep_dim(node)


@rule("pteron.adapter_rows")
def adapter_rows(builder: BatchedGraphBuilder, node: Node) -> None:
    """Each row has the adapter of its slot's sequence."""
    chosen, tokens, _, which = node.args
    assert isinstance(chosen, Tensor)
    made = builder.give_rows(which, 0)
    builder.emit(node.name, builder.caches[chosen.id], builder.now(tokens), builder.places, made)


@rule("pteron.lora")
def lora(builder: BatchedGraphBuilder, node: Node) -> None:
    x, y, *matrices, which, _ = node.args
    dim = builder.row_dim(y)
    beside = builder.row_dim(x) == dim < len(shape_of(x)) - 1 and builder.row_dim(which) == 0
    refuse_unless(beside and all(map(builder.is_fixed, matrices)), "its matrices differ from row to row")
    builder.keep(node, dim)


@rule("pteron.route.default", "pteron.combine.default")
@rule("pteron.experts_linear.default", "pteron.experts_int8.default", "pteron.experts_q4gsw.default")
@rule("pteron.experts_q8gsw.default")
def experts(builder: BatchedGraphBuilder, node: Node) -> None:
    """x, and what was chosen for each token."""
    x, *rest, _ = node.args
    refuse_unless(builder.row_dim(x) == 0, "its tokens are not in the first dim")
    is_beside = all(builder.row_dim(value) == 0 for value in rest if builder.has_rows(value))
    others = [value for value in rest if not builder.has_rows(value)]
    refuse_unless(is_beside and all(map(builder.is_fixed, others)), "its weights differ from row to row")
    builder.keep_dim(node)


@rule("torchao.choose_qparams_affine.default")
def qparams(builder: BatchedGraphBuilder, node: Node) -> None:
    x, _, block, *_ = node.args
    sizes = block.items if isinstance(block, ValueList) else block
    dim = builder.row_dim(x)
    is_separate = isinstance(sizes, tuple) and len(sizes) == len(shape_of(x)) and sizes[dim] == 1
    refuse_unless(is_separate, "it looks at several rows at once")
    builder.keep_dim(node)


_INDICES = {
    "aten.embedding.default": 1,
    "et_vk.embedding_q4gsw.default": 3,
    "pteron.embedding_q8gsw.default": 4,
    "quantized_decomposed.embedding_4bit.dtype": 5,
}


@rule(*_INDICES)
def embedding(builder: BatchedGraphBuilder, node: Node) -> None:
    position = _INDICES[node.name]
    others = (value for index, value in enumerate(node.args[:-1]) if index != position)
    refuse_unless(all(map(builder.is_fixed, others)), "its table differs from row to row")
    builder.keep(node, builder.row_dim(node.args[position]))


# Shapes -------------------------------------------------------------------------------------------


@rule("aten.clone.default", "aten.alias_copy.default", "aten._to_copy.default")
@rule("dim_order_ops._clone_dim_order.default", "dim_order_ops._to_dim_order_copy.default")
def copy(builder: BatchedGraphBuilder, node: Node) -> None:
    x, output = node.args[0], node.args[-1]
    if isinstance(x, Tensor) and isinstance(output, Tensor) and x.id in builder.from_position:
        refuse_unless(x.dtype is output.dtype, "it converts what depends on the position")
        builder.from_position[output.id] = builder.from_position[x.id]
        return
    builder.keep_dim(node)


@rule("aten.view_copy.default")
def view(builder: BatchedGraphBuilder, node: Node) -> None:
    """A view that keeps each row's elements together, with the number of rows in its sizes."""
    x, sizes, output = node.args
    items = sizes.items if isinstance(sizes, ValueList) else sizes
    assert isinstance(items, tuple)
    before, steps = builder.leading_dim(x), builder.steps_max
    named = [index for index, item in enumerate(items) if builder.is_position(item, Live.STEPS)]
    open_ones = [index for index, item in enumerate(items) if item == -1]
    shape = shape_of(output)
    first = next((index for index, size in enumerate(shape) if size != 1), len(shape))
    # With one step, sizes do not identify the dim: it stays where it was, among those of size 1.
    dim = (named or [index for index in open_ones if steps > 1] or [before if steps == 1 else first])[0]
    fits = dim < len(shape) and shape[dim] == steps and all(size == 1 for size in shape[:dim])
    refuse_unless(fits, "it does not keep rows together")
    made = builder.give_rows(output, dim)
    count: Value = items[dim] if named else _steps(builder)
    now = tuple(count if index == dim else builder.now(item) for index, item in enumerate(items))
    builder.emit(node.name, builder.now(x), ValueList(builder.new_id(), now), made)  # type: ignore[arg-type]


def _steps(builder: BatchedGraphBuilder) -> SymInt:
    """The number of rows, as a live integer."""
    rows = SymInt(builder.new_id())
    builder.symbols[rows.id] = Live.STEPS
    builder.emit("sym_size.int", builder.places, 0, rows)
    return rows


@rule("aten.unsqueeze_copy.default")
def unsqueeze(builder: BatchedGraphBuilder, node: Node) -> None:
    x, at, output = node.args
    dim, added = builder.row_dim(x), dim_of(at, len(shape_of(output)))
    builder.keep(node, dim + (added <= dim))


@rule("aten.permute_copy.default", "aten.permute.default")
def permute(builder: BatchedGraphBuilder, node: Node) -> None:
    x, dims, _ = node.args
    assert isinstance(dims, tuple)
    order = [dim_of(dim, len(dims)) for dim in dims]
    builder.keep(node, order.index(builder.row_dim(x)))


@rule("aten.split_with_sizes_copy.default")
def split(builder: BatchedGraphBuilder, node: Node) -> None:
    x, _, at, _ = node.args
    refuse_unless(dim_of(at, len(shape_of(x))) != builder.row_dim(x), "it splits rows apart")
    builder.keep_dim(node)


@rule("aten.cat.default")
def cat(builder: BatchedGraphBuilder, node: Node) -> None:
    parts, at, output = node.args
    dims = {builder.row_dim(each) for each in tensors(parts)}
    refuse_unless(len(dims) == 1 and dim_of(at, len(shape_of(output))) not in dims, "it joins rows")
    builder.keep(node, dims.pop())


@rule("aten.select_copy.int")
def select(builder: BatchedGraphBuilder, node: Node) -> None:
    """The last step of a sequence: every row is a last step."""
    x, at, index, output = node.args
    dim, chosen = builder.row_dim(x), dim_of(at, len(shape_of(x)))
    if chosen != dim:
        builder.keep(node, dim - (chosen < dim))
        return
    is_last = index in (-1, shape_of(x)[dim] - 1)
    refuse_unless(
        is_last and dim > 0 and builder.leading_dim(x) == dim, "it selects a step that is not the last"
    )
    made = builder.give_rows(output, dim - 1)
    sizes: tuple[Item, ...] = (*made.shape_max[: dim - 1], _steps(builder), *made.shape_max[dim:])
    builder.emit("aten.view_copy.default", builder.now(x), ValueList(builder.new_id(), sizes), made)
