"""What is around a convolution, computed with it: before it padding, or factors of planes; after it a
residual's sum, bounds, an activation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from pteron.families.elementwise.activations import activations
from pteron.graph import Tensor, Value
from pteron.ops import OPERATORS, Call
from pteron.ops.rewrite import Flow, Replacement, dtype_of, items_of, orders, rewrite, shape_of

_PLAIN, _CLAMPED = "aten.convolution.default", "et_vk.conv_with_clamp.default"
_FINISHED = "pteron.convolution"
_BOUNDED = ("aten.relu.default", "aten.hardtanh.default", "aten.clamp.default")


@dataclass(frozen=True, slots=True)
class _Arguments:
    """The arguments of `pteron.convolution`, in their order."""

    x: Value
    weight: Value
    bias: Value
    stride: Value
    padding: Value
    dilation: Value
    transposed: Value
    output_padding: Value
    groups: Value
    excess: Value = ()
    factors: Value = None
    low: Value = None
    high: Value = None
    addend: Value = None
    activation: Value = "none"

    @classmethod
    def of(cls, call: Call) -> _Arguments:
        """Those of a convolution by any operator."""
        if call.operator.name == _CLAMPED:
            *window, low, high = call.inputs
            return replace(cls(*window), low=low, high=high)
        return cls(*call.inputs)

    def call(self, last: Call) -> Call:
        """The call that makes what the last of several calls makes."""
        inputs = tuple(getattr(self, field.name) for field in fields(self))
        return Call(last.node, OPERATORS[_FINISHED], inputs, last.outputs)


@rewrite("convolution_padding")
def convolution_padding(flow: Flow) -> Iterator[Replacement]:
    """Zeros around images, or along one dim, then a convolution."""
    for name in (_PLAIN, _CLAMPED):
        for call in flow.of(name):
            pad = flow.maker(call.inputs[0], "aten.constant_pad_nd.default")
            borders = _borders(pad) if pad else None
            given = _Arguments.of(call)
            inside = _whole_numbers(given.padding)
            if pad is None or borders is None or len(inside) != len(borders) or given.transposed is not False:
                continue
            starts = tuple(start + more for (start, _), more in zip(borders, inside, strict=True))
            excess = tuple(end - start for start, end in borders)
            padded = replace(given, x=pad.inputs[0], padding=starts, excess=excess)
            yield Replacement((pad, call), padded.call(call))


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
            for convolution, given in _unfinished(flow, made):
                if given.addend is None and _fits(made, addend, total.outputs[0]):
                    yield Replacement((convolution, total), replace(given, addend=addend).call(total))


@rewrite("convolution_bounds")
def convolution_bounds(flow: Flow) -> Iterator[Replacement]:
    """A convolution, then relu, hardtanh or clamp."""
    for name in _BOUNDED:
        for call in flow.of(name):
            low, high = call.inputs[1:] or (0.0, None)
            for convolution, given in _unfinished(flow, call.inputs[0]):
                if _are_bounds(low, high):
                    yield Replacement((convolution, call), replace(given, low=low, high=high).call(call))


@rewrite("convolution_activation")
def convolution_activation(flow: Flow) -> Iterator[Replacement]:
    """A convolution, then an activation other than relu, which is a bound."""
    for call, name in activations(flow):
        for convolution, given in _unfinished(flow, call.inputs[0]):
            if name != "relu":
                yield Replacement((convolution, call), replace(given, activation=name).call(call))


@rewrite("convolution_factors")
def convolution_factors(flow: Flow) -> Iterator[Replacement]:
    """Images times one number for each of their planes, as squeeze-and-excitation has it, then a convolution:
    it multiplies what it loads."""
    for name in (_PLAIN, _CLAMPED, _FINISHED):
        for call in flow.of(name):
            given = _Arguments.of(call)
            product = flow.maker(given.x, "aten.mul.Tensor")
            if product is None or given.factors is not None:
                continue
            for x, factors in orders(product):
                if _are_factors(x, factors, given.x):
                    multiplied = replace(given, x=x, factors=factors)
                    yield Replacement((product, call), multiplied.call(call))


def _are_factors(x: Value, factors: Value, product: Value) -> bool:
    """Whether images [n, c, ...] are multiplied by [n, c, 1, ...], all of one type."""
    shape, planes = shape_of(x), shape_of(factors)
    is_planes = shape is not None and planes == (*shape[:2], *(1 for _ in shape[2:])) and len(shape) in (3, 4)
    return is_planes and shape_of(product) == shape and dtype_of(x) is dtype_of(factors) is dtype_of(product)


def _unfinished(flow: Flow, value: Value) -> Iterator[tuple[Call, _Arguments]]:
    """The convolution that makes a value, and its arguments, if it has neither bounds nor an activation."""
    for name in (_PLAIN, _FINISHED):
        if made := flow.maker(value, name):
            given = _Arguments.of(made)
            if (given.low, given.high, given.activation) == (None, None, "none"):
                yield made, given


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
