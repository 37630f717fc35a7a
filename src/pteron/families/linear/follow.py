"""Linear layers in fewer launches: with what follows them, an activation or a residual's sum, and several of
one tensor at once. Views between them do not matter: they keep the order of elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pteron.families.elementwise.activations import activations
from pteron.graph import Tensor, Value, ValueList
from pteron.ops import OPERATORS, Call
from pteron.ops.rewrite import Flow, Replacement, dtype_of, rewrite, shape_of

_PLAIN, _FINISHED, _VIEW = "aten.linear.default", "pteron.linear", "aten.view_copy.default"
_SEVERAL = "pteron.linear_several"
_MANY = 3  # outputs that a kernel writes


@rewrite("linear_activation")
def linear_activation(flow: Flow) -> Iterator[Replacement]:
    """A linear layer, then an activation."""
    for call, activation in activations(flow):
        for old, factors, sizes in _layers(flow, call.inputs[0]):
            yield Replacement((*old, call), _finished(call, (*factors, sizes, activation, None)))


@rewrite("dense_add")
def dense_add(flow: Flow) -> Iterator[Replacement]:
    """A linear layer plus a tensor of the same shape, in any order."""
    for total in flow.of("aten.add.Tensor"):
        first, second, alpha = total.inputs
        for made, addend in ((first, second), (second, first)) if alpha == 1 else ():
            is_alike = shape_of(made) == shape_of(addend) == shape_of(total.outputs[0])
            if is_alike and dtype_of(made) is dtype_of(addend) is dtype_of(total.outputs[0]):
                for old, factors, sizes in _layers(flow, made):
                    yield Replacement((*old, total), _finished(total, (*factors, sizes, "none", addend)))


@rewrite("dense_several")
def dense_several(flow: Flow) -> Iterator[Replacement]:
    """Two or three linear layers of one tensor, with constant weights of one depth: queries, keys, values."""
    alike: dict[tuple[object, ...], list[Call]] = {}
    for layer in flow.of(_PLAIN):
        x, weight, bias = layer.inputs
        source, _ = flow.behind_views(x)
        is_constant = all(each is None or _is_constant(flow, each) for each in (weight, bias))
        if is_constant and isinstance(source, Tensor) and flow.is_fixed(source):
            shapes = shape_of(x), (shape_of(weight) or ())[1:]
            types = (dtype_of(each) for each in (x, weight, bias))
            alike.setdefault((source.id, *shapes, *types), []).append(layer)
    for layers in alike.values():
        if 1 < len(layers) <= _MANY:
            weights, biases = (ValueList(-1, _tensors(layers, place)) for place in (1, 2))
            outputs = tuple(layer.outputs[0] for layer in layers)
            inputs = layers[0].inputs[0], weights, biases if biases.items else None
            yield Replacement(tuple(layers), Call(layers[-1].node, OPERATORS[_SEVERAL], inputs, outputs))


def _tensors(layers: Sequence[Call], place: int) -> tuple[Tensor, ...]:
    """The argument at `place` of every layer, where there is one."""
    values = (layer.inputs[place] for layer in layers)
    return tuple(value for value in values if isinstance(value, Tensor))


def _is_constant(flow: Flow, value: Value) -> bool:
    """Whether a tensor is a constant that no call changes."""
    return isinstance(value, Tensor) and value.constant is not None and flow.is_fixed(value)


def _layers(flow: Flow, value: Value) -> Iterator[tuple[tuple[Call, ...], tuple[Value, ...], Value]]:
    """The linear layer that makes a value, with the views of its result; its factors; the sizes of the last
    view."""
    made, views = flow.behind_views(value)
    layer = flow.maker(made, _PLAIN)
    if layer and dtype_of(made) is dtype_of(value):
        shown = next((view for view in views if view.operator.name == _VIEW), None)
        yield (layer, *views), layer.inputs, shown.inputs[1] if shown else None


def _finished(last: Call, inputs: tuple[Value, ...]) -> Call:
    return Call(last.node, OPERATORS[_FINISHED], inputs, last.outputs)
