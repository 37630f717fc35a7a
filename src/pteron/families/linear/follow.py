"""What follows a linear layer, computed with it: an activation, a residual's sum. Views between them do not
matter: they keep the order of elements."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.graph import Value
from pteron.ops import OPERATORS, Call
from pteron.ops.rewrite import Flow, Replacement, dtype_of, rewrite, shape_of

_PLAIN, _FINISHED, _VIEW = "aten.linear.default", "pteron.linear", "aten.view_copy.default"


@rewrite("linear_activation")
def linear_activation(flow: Flow) -> Iterator[Replacement]:
    """A linear layer, then gelu or relu."""
    for call, activation in _activations(flow):
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


def _activations(flow: Flow) -> Iterator[tuple[Call, str]]:
    for call in flow.of("aten.gelu.default"):
        yield call, "gelu_tanh" if call.inputs[1] == "tanh" else "gelu"
    for call in flow.of("aten.relu.default"):
        yield call, "relu"


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
