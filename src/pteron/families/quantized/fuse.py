"""Rewrites that fuse products with 4-bit or 8-bit weights: several of one x, a gate, the norm before, the
sum after.

Each creates or extends a call of `pteron.linear_q4`. Views that keep every live shape are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pteron.dtypes import DType
from pteron.graph import Tensor, Value, ValueList
from pteron.ops import OPERATORS, Call, Operator
from pteron.ops.rewrite import Flow, Replacement, dtype_of, fits_sum, items_of, keeps_shape, rewrite, shape_of

FUSED = "pteron.linear_q4"
_DYNAMIC, _QPARAMS = "et_vk.linear_dq8ca_q4gsw.default", "torchao.choose_qparams_affine.default"
_DYNAMIC_ADD, FUSED_DYNAMIC = "pteron.linear_dq8ca_q4_add", "pteron.linear_dq8ca_q4"
_COPY, _VIEW = "aten.clone.default", "aten.view_copy.default"
_CHUNK = 32  # weights: a group is a multiple of it where a row has one scale
_MANY = 3  # products that one launch can compute
_NO_NORM = (None, 0.0)  # gain, eps
NO_END = (None, False)  # residual, gated


class _Form(NamedTuple):
    """The positions of a product's factors among its arguments, and the bits of its weights."""

    bits: int
    weights: int
    scales: int
    group_size: int | None = None  # None: a scale per row of weights
    bias: int | None = None
    minima: int | None = None


_BY_ROWS = "aten._weight_int8pack_mm.default"
PLAIN = {
    "et_vk.linear_q4gsw.default": _Form(4, 1, 2, 3, 4),
    "pteron.linear_q8gsw.default": _Form(8, 1, 2, 4, 5, 3),
    _BY_ROWS: _Form(8, 1, 2),
}
_DYNAMIC_FORM = _Form(4, 3, 5, 6, 7)


@rewrite("shared_qparams")
def shared_qparams(flow: Flow) -> Iterator[Replacement]:
    """Products of one x as int8: scales and zero points are computed once for all of them."""
    products = {product.inputs[:3]: product for product in flow.of(_DYNAMIC)}
    for first in flow.of(_QPARAMS):
        x = first.inputs[0]
        assert isinstance(x, Tensor)
        same = [call for call in flow.readers[x.id] if call.operator is first.operator]
        same = [call for call in same if call.inputs == first.inputs]
        is_made = all(flow.position[maker] < flow.position[first] for maker in flow.makers.get(x.id, ()))
        for call in same[1:] if same[0] is first and is_made else ():
            if product := products.get((x, *call.outputs)):
                inputs = x, *first.outputs, *product.inputs[3:]
                new = Call(product.node, product.operator, inputs, product.outputs)
                yield Replacement((call, product), new)


@rewrite("linear_dynamic")
def linear_dynamic(flow: Flow) -> Iterator[Replacement]:
    """The scales and zero points of rows of x, and one to three products of it as int8."""
    for choice in flow.of(_QPARAMS):
        x, mapping, block, low, high, least, _ = choice.inputs
        readers = {reader for value in choice.outputs if value for reader in flow.readers.get(value.id, ())}
        products = sorted(readers, key=lambda call: flow.position[call])
        is_plain = mapping == "ASYMMETRIC" and low in (None, -128) and high in (None, 127)
        in_rows = isinstance(x, Tensor) and block == (*(1 for _ in x.shape_max[1:]), x.shape_max[-1])
        if not is_plain or not in_rows or dtype_of(x) is not DType.F32 or not 0 < len(products) <= _MANY:
            continue
        is_read = (call.inputs[:3] == (x, *choice.outputs) for call in products)
        if any(call.operator.name != _DYNAMIC for call in products) or not all(is_read):
            continue
        given = [(*_factors([each], _DYNAMIC_FORM, each.inputs[6]), 4, None) for each in products]
        if _are_alike(products, given):
            outputs = tuple(product.outputs[0] for product in products)
            factors = _factors(products, _DYNAMIC_FORM, products[0].inputs[6])
            inputs = (*factors, _list(products, 4), least, *NO_END)
            new = Call(products[-1].node, OPERATORS[FUSED_DYNAMIC], inputs, outputs)
            yield Replacement((choice, *products), new)


@rewrite("linear_rows")
def linear_rows(flow: Flow) -> Iterator[Replacement]:
    """A product with 8-bit weights of rows that are a view of x, with its bias and a view of the result: the
    product of x itself."""
    for call in flow.of(_BY_ROWS):
        old, out, bias = [call], call.outputs[0], None
        if (total := _sole_reader(flow, out)) and (bias := _bias_in(total, out)):
            old, out = [call, total], total.outputs[0]
        x, view = flow.behind_views(call.inputs[0], keeps_shape)[0], _sole_reader(flow, out)
        factors = _factors_of(call)
        if factors is None or view is None or view.operator.name != _VIEW or not isinstance(x, Tensor):
            continue
        assert isinstance(out, Tensor)
        shape = (*x.shape_max[:-1], out.shape_max[-1])
        is_same = shape_of(view.outputs[0]) == shape and keeps_shape(view)
        seen = None if is_same else Tensor(flow.new_id(), out.dtype, shape)
        biases = ValueList(-1, (bias,)) if bias else None
        inputs = (x, *factors[1:5], biases, *factors[6:], *NO_END)
        new = Call(call.node, OPERATORS[FUSED], inputs, (seen or view.outputs[0],))
        again = Call(view.node, view.operator, (seen, *view.inputs[1:]), view.outputs) if seen else None
        yield Replacement((*old, view), new, again)


def _sole_reader(flow: Flow, value: Value) -> Call | None:
    readers = flow.readers.get(value.id, []) if isinstance(value, Tensor) else []
    return readers[0] if len(readers) == 1 else None


def _bias_in(total: Call, product: Value) -> Tensor | None:
    """The constant that a call adds to all rows of a product."""
    if total.operator.name != "aten.add.Tensor" or total.inputs[2] != 1:
        return None
    bias = total.inputs[1 - total.inputs.index(product)]
    shape, columns = shape_of(bias), (shape_of(product) or ())[-1:]
    is_bias = isinstance(bias, Tensor) and bias.constant is not None and shape == columns
    is_one_type = dtype_of(bias) is dtype_of(product) is dtype_of(total.outputs[0])
    return bias if isinstance(bias, Tensor) and is_bias and is_one_type else None


@rewrite("linear_several")
def linear_several(flow: Flow) -> Iterator[Replacement]:
    """Two or three products of one x, with biases or without."""
    products: dict[int, list[tuple[Call, tuple[Value, ...]]]] = {}
    for call, inputs in fused(flow):
        x, is_plain = inputs[0], inputs[1:3] == _NO_NORM and inputs[-2:] == NO_END
        if isinstance(x, Tensor) and is_plain and len(call.outputs) == 1 and _is_float(call):
            products.setdefault(x.id, []).append((call, inputs))
    for found in products.values():
        found = sorted(found, key=lambda each: flow.position[each[0]])
        calls, given = [call for call, _ in found], [inputs for _, inputs in found]
        if 1 < len(calls) <= _MANY and _are_alike(calls, given):
            outputs = tuple(call.outputs[0] for call in calls)
            merged = tuple(_merged(each) for each in zip(*given, strict=True))
            yield Replacement(tuple(calls), Call(calls[-1].node, OPERATORS[FUSED], merged, outputs))


def _is_float(call: Call) -> bool:
    """Whether activations of a product are floats."""
    return call.operator.name != FUSED_DYNAMIC


def _merged(values: tuple[Value, ...]) -> Value:
    """The arguments at one place of several calls: lists one after the other, or what all have."""
    if not isinstance(values[0], ValueList):
        return values[0]
    lists = (value.items for value in values if isinstance(value, ValueList))
    return ValueList(-1, tuple(item for items in lists for item in items))


@rewrite("gated_linear")
def gated_linear(flow: Flow) -> Iterator[Replacement]:
    """silu(gate) · up, where both are products of one x."""
    for call in flow.of("pteron.silu_mul"):
        (gate, gate_views), (up, up_views) = (flow.behind_views(value, keeps_shape) for value in call.inputs)
        products = flow.maker(gate, FUSED) or flow.maker(gate, FUSED_DYNAMIC)
        if products is None or products.inputs[-2:] != NO_END or {*products.outputs} != {gate, up}:
            continue
        inputs = products.inputs[:-2]
        if _is_pair(products) and shape_of(gate) == shape_of(up) == shape_of(call.outputs[0]):
            if gate is products.outputs[1]:
                inputs = tuple(_reversed(each) for each in inputs)
            new = Call(call.node, products.operator, (*inputs, None, True), call.outputs)
            yield Replacement((products, *gate_views, *up_views, call), new)


@rewrite("norm_linear")
def norm_linear(flow: Flow) -> Iterator[Replacement]:
    """Products of the result of an RMS norm, if nothing else reads it."""
    for call, inputs in fused(flow):
        value, views = flow.behind_views(inputs[0], _is_copy)
        norm = flow.maker(value, "et_vk.rms_norm.default")
        if norm is None or inputs[1:3] != _NO_NORM:
            continue
        if shape_of(value) == shape_of(inputs[0]) == shape_of(norm.inputs[0]):
            new = Call(call.node, _fused_operator(call), (*norm.inputs, *inputs[3:]), call.outputs)
            yield Replacement((norm, *views, call), new)


@rewrite("linear_add")
def linear_add(flow: Flow) -> Iterator[Replacement]:
    """A product plus a tensor of its size and type, in any order."""
    products = dict(fused(flow))
    for total in flow.of("aten.add.Tensor"):
        first, second, alpha = total.inputs
        for made, addend in ((first, second), (second, first)) if alpha == 1 else ():
            value, views = flow.behind_views(made, keeps_shape)
            names = (*PLAIN, FUSED, _DYNAMIC, FUSED_DYNAMIC)
            call = next(filter(None, (flow.maker(value, name) for name in names)), None)
            if call is None or not fits_sum(call, value, addend, total.outputs[0]):
                continue
            if call.operator.name == _DYNAMIC:
                new = Call(total.node, OPERATORS[_DYNAMIC_ADD], (*call.inputs, addend), total.outputs)
                yield Replacement((call, *views, total), new)
            elif call in products and products[call][-2:] == NO_END:
                inputs = *products[call][:-2], addend, False
                new = Call(total.node, _fused_operator(call), inputs, total.outputs)
                yield Replacement((call, *views, total), new)


def fused(flow: Flow) -> Iterator[tuple[Call, tuple[Value, ...]]]:
    """Every product, and its arguments as those of a fused one."""
    for name in PLAIN:
        for call in flow.of(name):
            if factors := _factors_of(call):
                yield call, (*factors, *NO_END)
    for name in (FUSED, FUSED_DYNAMIC):
        for call in flow.of(name):
            yield call, call.inputs


def _fused_operator(call: Call) -> Operator:
    """The operator of the fused call that replaces a product."""
    return OPERATORS[FUSED] if call.operator.name in PLAIN else call.operator


def _factors_of(call: Call) -> tuple[Value, ...] | None:
    """The arguments of a product as those of a fused one, before the residual; None if its rows of 8-bit
    weights are not whole words."""
    form = PLAIN[call.operator.name]
    rows = shape_of(call.inputs[form.weights])
    if rows is None or (form.bits == 8 and rows[1] % 8):
        return None
    group_size: Value = -(-rows[1] // _CHUNK) * _CHUNK  # if a row has one scale
    if form.group_size is not None:
        group_size = call.inputs[form.group_size]
    return (*_factors([call], form, group_size), form.bits, _list([call], form.minima))


def _factors(products: Sequence[Call], form: _Form, group_size: Value) -> tuple[Value, ...]:
    """The first arguments of any fused product, from products of one x."""
    lists = [_list(products, place) for place in (form.weights, form.scales, form.bias)]
    return (products[0].inputs[0], *_NO_NORM, *lists, group_size)


def _list(products: Sequence[Call], place: int | None) -> ValueList | None:
    """The argument at `place` of every product as a list, or None if no product has it."""
    values = () if place is None else (product.inputs[place] for product in products)
    tensors = tuple(value for value in values if isinstance(value, Tensor))
    return ValueList(-1, tensors) if tensors else None


def _are_alike(products: Sequence[Call], inputs: Sequence[tuple[Value, ...]]) -> bool:
    """Whether products have weights of as many bits, in groups of one size and rows of one length, outputs of
    one type, and all of them a constant bias or none, and minima or none."""
    same = {
        (
            *(shape[1:] if (shape := shape_of(items_of(weights)[0])) else ()),
            group_size,
            bits,
            minima is None,
            *(dtype_of(bias) for bias in items_of(biases)),
            dtype_of(call.outputs[0]),
        )
        for call, (_, _, _, weights, _, biases, group_size, bits, minima, *_) in zip(
            products, inputs, strict=True
        )
    }
    biases = [bias for given in inputs for bias in items_of(given[5])]
    return len(same) == 1 and all(isinstance(bias, Tensor) and bias.constant is not None for bias in biases)


def _is_pair(products: Call) -> bool:
    """Whether there are two products with weights of one shape (the first list of a fused call)."""
    weights = next(value.items for value in products.inputs if isinstance(value, ValueList))
    return len(weights) == 2 and shape_of(weights[0]) == shape_of(weights[1])


def _is_copy(view: Call) -> bool:
    return view.operator.name == _COPY


def _reversed(value: Value) -> Value:
    return ValueList(value.id, value.items[::-1]) if isinstance(value, ValueList) else value
