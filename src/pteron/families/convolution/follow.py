"""What is around a convolution, computed with it: before it padding, or factors of planes; after it a
residual's sum, bounds, an activation."""

from __future__ import annotations

from collections.abc import Iterator

from pteron.families.elementwise.activations import activations
from pteron.graph import Tensor, Value
from pteron.ops import OPERATORS, Call
from pteron.ops.rewrite import Flow, Replacement, dtype_of, items_of, orders, rewrite, shape_of

_PLAIN, _CLAMPED = "aten.convolution.default", "et_vk.conv_with_clamp.default"
_FINISHED = "pteron.convolution"
_BOUNDED = ("aten.relu.default", "aten.hardtanh.default", "aten.clamp.default")


@rewrite("convolution_padding")
def convolution_padding(flow: Flow) -> Iterator[Replacement]:
    """Zeros around images, or along one dim, then a convolution."""
    for name in (_PLAIN, _CLAMPED):
        for call in flow.of(name):
            pad = flow.maker(call.inputs[0], "aten.constant_pad_nd.default")
            borders = _borders(pad) if pad else None
            _, weight, bias, stride, padding, *window = call.inputs[:9]
            inside = _whole_numbers(padding)
            if pad is None or borders is None or len(inside) != len(borders) or call.inputs[6] is not False:
                continue
            starts = tuple(start + more for (start, _), more in zip(borders, inside, strict=True))
            excess = tuple(end - start for start, end in borders)
            rest = _arguments(call)[10:]
            inputs = pad.inputs[0], weight, bias, stride, starts, *window, excess, *rest
            yield Replacement((pad, call), _finished(call, inputs))


def _borders(pad: Call) -> list[tuple[int, int]] | None:
    """How many zeros a call adds at the start and at the end of each dim of images; None if it adds others,
    removes elements, or changes channels."""
    x, given, value = pad.inputs
    dims, sizes = len(shape_of(x) or ()) - 2, _whole_numbers(given)
    is_zeros = value == 0 and len(sizes) == len(items_of(given)) and min(sizes, default=-1) >= 0
    if not is_zeros or len(sizes) > 2 * dims or dims > 2:
        return None
    borders = list(zip(sizes[::2], sizes[1::2], strict=True))  # the last dim comes first
    return [(0, 0)] * (dims - len(borders)) + borders[::-1]


def _whole_numbers(value: Value) -> tuple[int, ...]:
    """The numbers in a list that are known before a call."""
    return tuple(item for item in items_of(value) if isinstance(item, int))


@rewrite("convolution_add")
def convolution_add(flow: Flow) -> Iterator[Replacement]:
    """A convolution plus a tensor of no more elements, whichever comes first."""
    for total in flow.of("aten.add.Tensor"):
        first, second, alpha = total.inputs
        for made, addend in ((first, second), (second, first)) if alpha == 1 else ():
            for convolution, inputs in _unbounded(flow, made):
                if inputs[-2:] == (None, "none") and _fits(made, addend, total.outputs[0]):
                    new = _finished(total, (*inputs[:-2], addend, "none"))
                    yield Replacement((convolution, total), new)


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


@rewrite("convolution_factors")
def convolution_factors(flow: Flow) -> Iterator[Replacement]:
    """Images times one number for each of their planes, as squeeze-and-excitation has it, then a convolution:
    it multiplies what it loads."""
    for name in (_PLAIN, _CLAMPED, _FINISHED):
        for call in flow.of(name):
            images, *middle, factors, low, high, addend, activation = _arguments(call)
            product = flow.maker(images, "aten.mul.Tensor")
            if product is None or factors is not None:
                continue
            for x, given in orders(product):
                if _are_factors(x, given, images):
                    inputs = x, *middle, given, low, high, addend, activation
                    yield Replacement((product, call), _finished(call, inputs))


def _are_factors(x: Value, factors: Value, product: Value) -> bool:
    """Whether images [n, c, ...] are multiplied by [n, c, 1, ...], all of one type."""
    shape, planes = shape_of(x), shape_of(factors)
    is_planes = shape is not None and planes == (*shape[:2], *(1 for _ in shape[2:])) and len(shape) in (3, 4)
    return is_planes and shape_of(product) == shape and dtype_of(x) is dtype_of(factors) is dtype_of(product)


def _unbounded(flow: Flow, value: Value) -> Iterator[tuple[Call, tuple[Value, ...]]]:
    """The convolution without bounds that makes a value, and its arguments as those of a finished one."""
    for name in (_PLAIN, _FINISHED):
        made = flow.maker(value, name)
        if made and (inputs := _arguments(made))[-4:-2] == (None, None):
            yield made, inputs


def _arguments(call: Call) -> tuple[Value, ...]:
    """The arguments of a convolution, as those of a finished one."""
    if call.operator.name == _FINISHED:
        return call.inputs
    bounds = call.inputs[9:] or (None, None)
    return (*call.inputs[:9], (), None, *bounds, None, "none")


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
