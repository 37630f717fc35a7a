"""Rewrites that fuse attention with the products with 4-bit or 8-bit weights before and after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pteron.families.attention.int8 import head_width
from pteron.families.quantized.fuse import FUSED, FUSED_DYNAMIC, NO_END, fused
from pteron.graph import Shape, Tensor, Value, ValueList
from pteron.ops import OPERATORS, Call
from pteron.ops.rewrite import Flow, Replacement, dtype_of, items_of, rewrite, without_ones

_ATTENTION = "pteron.attention_q4"
_NO_INT8 = (None, None)  # sums of weights, the smallest scale
_NO_OUTPUT = (None,) * 9  # weights, scales, bias, group size, bits, minima, sums, smallest scale, residual
_OUTPUT = slice(-len(_NO_OUTPUT), None)  # among the arguments of attention


@rewrite("linear_rope_sdpa")
def linear_rope_sdpa(flow: Flow) -> Iterator[Replacement]:
    """Attention over caches whose queries, keys and values are products of one x."""
    for attention in flow.of("pteron.rope_sdpa"):
        seen = [flow.behind_views(value) for value in attention.inputs[:3]]
        found = [value for value, _ in seen]
        products = flow.maker(found[0], FUSED) or flow.maker(found[0], FUSED_DYNAMIC)
        if products is None or products.inputs[-2:] != NO_END or set(found) != set(products.outputs):
            continue
        is_one_type = len({dtype_of(value) for value in (products.inputs[0], *found)}) == 1
        if is_one_type and len(products.outputs) == 3 and _are_heads(attention, found):
            places = [products.outputs.index(value) for value in found]
            ordered = [_in_order(each, places) for each in _factors(products, products.inputs)]
            inputs = (*ordered, *attention.inputs[3:], *_NO_OUTPUT)
            views = dict.fromkeys(view for _, chain in seen for view in chain)
            new = Call(attention.node, OPERATORS[_ATTENTION], inputs, attention.outputs)
            yield Replacement((products, *views, attention), new)


@rewrite("attention_linear")
def attention_linear(flow: Flow) -> Iterator[Replacement]:
    """The product of the result of such an attention, with or without a residual."""
    for product, x, output in _products(flow):
        value, views = flow.behind_views(x)
        attention = flow.maker(value, _ATTENTION)
        if attention is None or attention.inputs[_OUTPUT] != _NO_OUTPUT:
            continue
        batch, steps, *heads = _shape(value)
        fits = _shape(x)[-1] == heads[0] * heads[1] and (batch == 1 or _shows_batches(batch, views))
        rows = _shape(product.outputs[0])[:-1]
        is_sum = output[-1] is not None  # a sum has the dims of the residual
        if fits and (
            rows == (batch, steps) or (is_sum and without_ones(rows) == without_ones((batch, steps)))
        ):
            inputs = (*attention.inputs[: _OUTPUT.start], *output)
            new = Call(product.node, attention.operator, inputs, product.outputs)
            yield Replacement((attention, *views, product), new)


def _factors(products: Call, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
    """The arguments of products before the residual, as attention takes them."""
    factors = inputs[:-2]
    if products.operator.name != FUSED_DYNAMIC:
        return (*factors, *_NO_INT8)
    return (*factors[:-2], 4, None, *factors[-2:])


def _products(flow: Flow) -> Iterator[tuple[Call, Value, tuple[Value, ...]]]:
    """(call, x, arguments for attention) of every product of one matrix and an x that is not normed."""
    for call, inputs in fused(flow):
        x, gain, _, *factors = _factors(call, inputs)
        residual, is_gated = inputs[-2:]
        if gain is None and not is_gated and len(call.outputs) == 1:
            alone = (each.items[0] if isinstance(each, ValueList) else each for each in factors)
            yield call, x, (*alone, residual)


def _are_heads(attention: Call, made: Sequence[Value]) -> bool:
    """Whether attention views rows of the products as heads of the caches' width."""
    cache = attention.inputs[8]
    assert isinstance(cache, Tensor)
    batch, width = cache.shape_max[0], head_width(cache)
    shapes = zip(attention.inputs[:3], made, strict=True)
    return all(
        (shape[0], shape[3], shape[2] * shape[3]) == (batch, width, _shape(value)[-1])
        for shape, value in ((_shape(seen), value) for seen, value in shapes)
    )


def _shows_batches(batch: int, views: Sequence[Call]) -> bool:
    """Whether the last of some views is [batch, steps, columns] at every call."""
    sizes = views[0].inputs[1] if views and len(views[0].inputs) > 1 else None
    return items_of(sizes)[:-2] == (batch,)


def _in_order(value: Value, places: Sequence[int]) -> Value:
    """The items of a list at these places."""
    if not isinstance(value, ValueList):
        return value
    return ValueList(value.id, tuple(value.items[place] for place in places))


def _shape(value: Value) -> Shape:
    assert isinstance(value, Tensor)
    return value.shape_max
