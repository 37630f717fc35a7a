"""Rewrites that fuse products with 4-bit weights: several of one x, a gate, the norm before, the sum after.

Each creates or extends a call of `pteron.linear_q4`. Views that keep every live shape are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pteron.dtypes import DType
from pteron.graph import Tensor, Value, ValueList
from pteron.ops import OPERATORS, Call, Operator
from pteron.ops.rewrite import Flow, Replacement, dtype_of, fits_sum, keeps_shape, rewrite, shape_of

PLAIN, FUSED = "et_vk.linear_q4gsw.default", "pteron.linear_q4"
_DYNAMIC, _QPARAMS = "et_vk.linear_dq8ca_q4gsw.default", "torchao.choose_qparams_affine.default"
_DYNAMIC_ADD, FUSED_DYNAMIC = "pteron.linear_dq8ca_q4_add", "pteron.linear_dq8ca_q4"
_COPY = "aten.clone.default"
_MANY = 3  # products that one launch can compute
_NO_NORM = (None, 0.0)  # gain, eps
NO_END = (None, False)  # residual, gated


class _Positions(NamedTuple):
    """The positions of a product's factors among its arguments."""

    weights: int
    scales: int
    bias: int
    group_size: int


_PLAIN_POSITIONS, _DYNAMIC_POSITIONS = _Positions(1, 2, 4, 3), _Positions(3, 5, 7, 6)


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
        names = {call.operator.name for call in products}
        if names == {_DYNAMIC} and all(is_read) and _are_alike(products, _DYNAMIC_POSITIONS):
            outputs = tuple(product.outputs[0] for product in products)
            inputs = (*_factors(products, _DYNAMIC_POSITIONS), _list(products, 4), least, *NO_END)
            new = Call(products[-1].node, OPERATORS[FUSED_DYNAMIC], inputs, outputs)
            yield Replacement((choice, *products), new)


@rewrite("linear_several")
def linear_several(flow: Flow) -> Iterator[Replacement]:
    """Two or three products of one x, with biases or without."""
    for first in flow.of(PLAIN):
        x = first.inputs[0]
        assert isinstance(x, Tensor)
        readers = (call for call in flow.readers[x.id] if call.operator.name == PLAIN)
        products = [call for call in readers if call.inputs[0] is x]
        if products[0] is first and 1 < len(products) <= _MANY and _are_alike(products, _PLAIN_POSITIONS):
            outputs = tuple(product.outputs[0] for product in products)
            inputs = (*_factors(products, _PLAIN_POSITIONS), *NO_END)
            yield Replacement(tuple(products), Call(products[-1].node, OPERATORS[FUSED], inputs, outputs))


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
    for call, inputs in _fused(flow):
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
    fused = dict(_fused(flow))
    for total in flow.of("aten.add.Tensor"):
        first, second, alpha = total.inputs
        for made, addend in ((first, second), (second, first)) if alpha == 1 else ():
            value, views = flow.behind_views(made, keeps_shape)
            names = (PLAIN, FUSED, _DYNAMIC, FUSED_DYNAMIC)
            call = next(filter(None, (flow.maker(value, name) for name in names)), None)
            if call is None or not fits_sum(call, value, addend, total.outputs[0]):
                continue
            if call not in fused:
                new = Call(total.node, OPERATORS[_DYNAMIC_ADD], (*call.inputs, addend), total.outputs)
                yield Replacement((call, *views, total), new)
            elif fused[call][-2:] == NO_END:
                inputs = *fused[call][:-2], addend, False
                new = Call(total.node, _fused_operator(call), inputs, total.outputs)
                yield Replacement((call, *views, total), new)


def _fused(flow: Flow) -> Iterator[tuple[Call, tuple[Value, ...]]]:
    """Every product with 4-bit weights, and its arguments as those of a fused one."""
    for call in flow.of(PLAIN):
        yield call, (*_factors([call], _PLAIN_POSITIONS), *NO_END)
    for name in (FUSED, FUSED_DYNAMIC):
        for call in flow.of(name):
            yield call, call.inputs


def _fused_operator(call: Call) -> Operator:
    """The operator of the fused call that replaces a product with 4-bit weights."""
    return OPERATORS[FUSED] if call.operator.name == PLAIN else call.operator


def _factors(products: Sequence[Call], at: _Positions) -> tuple[Value, ...]:
    """The first arguments of a fused product, from products of one x; `at` locates their arguments."""
    inputs = products[0].inputs
    lists = [_list(products, place) for place in (at.weights, at.scales, at.bias)]
    return (inputs[0], *_NO_NORM, *lists, inputs[at.group_size])


def _list(products: Sequence[Call], place: int) -> ValueList | None:
    """The argument at `place` of every product as a list, or None if no product has it."""
    values = (product.inputs[place] for product in products)
    tensors = tuple(value for value in values if isinstance(value, Tensor))
    return ValueList(-1, tensors) if tensors else None


def _are_alike(products: Sequence[Call], at: _Positions) -> bool:
    """Whether products have one group size, rows of weights of one length and outputs of one type, and all of
    them a constant bias or none."""
    biases = [product.inputs[at.bias] for product in products]
    has_all = all(isinstance(bias, Tensor) and bias.constant is not None for bias in biases)
    rows = {shape[1:] for product in products if (shape := shape_of(product.inputs[at.weights]))}
    same = {(product.inputs[at.group_size], dtype_of(product.outputs[0])) for product in products}
    types = {dtype_of(bias) for bias in biases}
    return len(same) == len(types) == len(rows) == 1 and (has_all or not any(biases))


def _is_pair(products: Call) -> bool:
    """Whether there are two products with weights of one shape (the first list of a fused call)."""
    weights = next(value.items for value in products.inputs if isinstance(value, ValueList))
    return len(weights) == 2 and shape_of(weights[0]) == shape_of(weights[1])


def _is_copy(view: Call) -> bool:
    return view.operator.name == _COPY


def _reversed(value: Value) -> Value:
    return ValueList(value.id, value.items[::-1]) if isinstance(value, ValueList) else value
