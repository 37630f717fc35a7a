"""What follows a convolution, computed with it: a residual's sum, bounds, an activation."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.families.elementwise.activations import activations
from pteron.graph import Tensor, Value
from pteron.ops import OPERATORS, Call
from pteron.ops.rewrite import Flow, Replacement, rewrite

_PLAIN, _FINISHED = "aten.convolution.default", "pteron.convolution"
_BOUNDED = ("aten.relu.default", "aten.hardtanh.default", "aten.clamp.default")


@rewrite("convolution_add")
def convolution_add(flow: Flow) -> Iterator[Replacement]:
    """A convolution plus a tensor of no more elements, whichever comes first."""
    for total in flow.of("aten.add.Tensor"):
        first, second, alpha = total.inputs
        for made, addend in ((first, second), (second, first)) if alpha == 1 else ():
            convolution = flow.maker(made, _PLAIN)
            if convolution and _fits(made, addend, total.outputs[0]):
                inputs = *convolution.inputs, None, None, addend, "none"
                yield Replacement((convolution, total), _finished(total, inputs))


@rewrite("convolution_bounds")
def convolution_bounds(flow: Flow) -> Iterator[Replacement]:
    """A convolution, then relu, hardtanh or clamp."""
    for name in _BOUNDED:
        for call in flow.of(name):
            low, high = call.inputs[1:] or (0.0, None)
            for convolution, inputs in _unbounded(flow, call.inputs[0]):
                if inputs[-1] == "none" and _are_bounds(low, high):
                    yield Replacement(
                        (convolution, call), _finished(call, (*inputs[:-4], low, high, *inputs[-2:]))
                    )


@rewrite("convolution_activation")
def convolution_activation(flow: Flow) -> Iterator[Replacement]:
    """A convolution, then an activation other than relu, which is a bound."""
    for call, name in activations(flow):
        for convolution, inputs in _unbounded(flow, call.inputs[0]):
            if inputs[-1] == "none" and name != "relu":
                yield Replacement((convolution, call), _finished(call, (*inputs[:-1], name)))


def _unbounded(flow: Flow, value: Value) -> Iterator[tuple[Call, tuple[Value, ...]]]:
    """The convolution without bounds that makes a value, and its arguments as those of a finished one."""
    if plain := flow.maker(value, _PLAIN):
        yield plain, (*plain.inputs, None, None, None, "none")
    finished = flow.maker(value, _FINISHED)
    if finished and finished.inputs[-4:-2] == (None, None):
        yield finished, finished.inputs


def _finished(last: Call, inputs: tuple[Value, ...]) -> Call:
    return Call(last.node, OPERATORS[_FINISHED], inputs, last.outputs)


def _are_bounds(low: Value, high: Value) -> bool:
    """Whether these are numbers, or no bounds; where they cross, operators differ in which one counts."""
    if not all(bound is None or isinstance(bound, (int, float)) for bound in (low, high)):
        return False
    return low is None or high is None or low <= high  # type: ignore[operator]  # numbers both


def _fits(made: Value, addend: Value, total: object) -> bool:
    """Whether a sum has the shape and type of what the convolution makes."""
    return (
        isinstance(made, Tensor)
        and isinstance(addend, Tensor)
        and isinstance(total, Tensor)
        and made.shape_max == total.shape_max
        and made.dtype == addend.dtype == total.dtype
    )
