"""Attention as graphs spell it out: a product of queries and keys, a scale, a mask, a softmax, a product with
values. It becomes one call, which reads queries, keys and values where they are: views, permutations and
selections of a tensor become strides."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pteron.dtypes import DType
from pteron.families.attention.kernels import Attention
from pteron.families.attention.options import Options
from pteron.families.layout.copy import copy_strided
from pteron.families.layout.rearrange import slice_bounds
from pteron.families.layout.views import view_shape
from pteron.graph import Shape, SymInt, Tensor, Value, ValueList
from pteron.ops import OPERATORS, Call, Dispatch, LiveShape, Operand, Target, op, require
from pteron.ops.rewrite import (
    Flow,
    Replacement,
    constant_number,
    dtype_of,
    items_of,
    rewrite,
    shape_of,
    without_ones,
)
from pteron.ops.shapes import axis
from pteron.ops.strided import Strided

_NAME = "pteron.attention_of_views"
_PERMUTE, _VIEW, _BMM = "aten.permute_copy.default", "aten.view_copy.default", "aten.bmm.default"
_SWAP = (0, 2, 1, 3)  # from heads before steps to steps before heads, and back


# The operator -----------------------------------------------------------------------------------


def _heads(x: Operand, steps: Sequence[Any]) -> Iterator[Dispatch | Strided]:
    """Copies, where strides cannot show what the steps show; then the tensor after the steps."""
    seen, rest = Strided.of(x), list(steps)
    while rest:
        name, count = rest[:2]
        arguments, rest = rest[2 : 2 + count], rest[2 + count :]
        if name == "view":
            shape = view_shape(x.reshaped(seen.shape), arguments)
            viewed = seen.viewed(shape)
            if viewed is None:
                copied, dispatch = _copied(seen)
                yield dispatch
                viewed = copied.viewed(shape)
                assert viewed is not None
            seen = viewed
        elif name == "permute":
            seen = seen.permuted([int(dim) for dim in arguments])
        elif name == "select":
            seen = seen.selected(*arguments)
        elif name == "unsqueeze":
            seen = seen.unsqueezed(*arguments)
        else:
            dim, start, end = arguments
            first, last = (int(each) for each in slice_bounds(seen.shape[dim], start, end))
            seen = seen.sliced(dim, first, last - first)
    yield seen


def _copied(seen: Strided) -> tuple[Strided, Dispatch]:
    made = seen.source.scratch(seen.shape)
    dispatch = copy_strided(seen.source, made, seen.shape, seen.strides, made.strides, x_offset=seen.first)
    return Strided.of(made), dispatch


def _shown(x: Operand, steps: Sequence[Any]) -> LiveShape:
    *_, seen = _heads(x, steps)
    assert isinstance(seen, Strided)
    return seen.shape


def _shape(*arguments: Any) -> LiveShape:
    q, q_steps, _, _, v, v_steps, *_, steps_first = arguments
    batch, heads, steps, _ = _shown(q, q_steps)
    width = _shown(v, v_steps)[3]
    if not steps_first:
        return batch * heads, steps, width
    require(steps_first == 4 or batch == 1, "a result of three dims has one batch", q)
    return (batch, steps, heads, width)[-steps_first:]


@op(
    _NAME,
    "q q_steps:list k k_steps:list v v_steps:list mask? scale:float is_safe:bool steps_first:int -> out",
    shape=_shape,
)
def attention_of_views(*arguments: Any, target: Target) -> Iterator[Dispatch]:
    """q, k and v with the steps that lead to [batch, heads, steps, width]: (name, number of arguments,
    arguments) each. The result is [batch · heads, steps, width] or, in the last `steps_first` dims,
    [batch, steps, heads, width]."""
    *sources, mask, scale, is_safe, steps_first, out = arguments
    seen = []
    for x, steps in zip(sources[::2], sources[1::2], strict=True):
        *copies, last = _heads(x, steps)
        yield from copies  # type: ignore[misc]  # only the last is no dispatch
        assert isinstance(last, Strided)
        require(last.rank == 4, "attention takes tensors of rank 4", x)
        last = last.permuted(_SWAP)
        if not last.is_bindable(1 if last.shape[3] % 4 else 4):
            last, copy = _copied(last)
            yield copy
        seen.append(last)
    q, k, v = seen
    batch, steps, heads, _ = q.shape
    shape = (batch, steps, heads, v.shape[3])
    made = Strided.of(out.reshaped(shape))
    if not steps_first:
        made = Strided.of(out.reshaped((batch, heads, steps, v.shape[3]))).permuted(_SWAP)
    attention = Attention(q, k, v, made, k.shape[1], mask, Options(float(scale), is_safe=is_safe))
    yield from attention.dispatches(target)


# The rewrite ------------------------------------------------------------------------------------


@rewrite("attention")
def attention(flow: Flow) -> Iterator[Replacement]:
    """A softmax of scores between two products of batches of matrices."""
    for product in flow.of(_BMM):
        weights, views = flow.behind_views(product.inputs[0])
        guards = _guards(flow, weights)
        softmax = flow.maker(guards[-1].inputs[2] if guards else weights, "aten._softmax.default")
        if softmax is None or softmax.inputs[1] not in (-1, _rank(softmax.outputs[0]) - 1):
            continue
        found = _scores(flow, softmax.inputs[0])
        if found is None or _last(softmax.inputs[0]) != _last(found.product.outputs[0]):
            continue  # a view has rows of another length
        if not guards or guards[0].inputs[0] is softmax.inputs[0]:
            calls = (*views, *guards, softmax, *found.calls)
            yield from _replacement(flow, product, calls, replace(found, is_safe=bool(guards)))


def _guards(flow: Flow, weights: Value) -> tuple[Call, ...]:
    """The calls that make the weights of a query zeros if all its scores are -inf, from a test of the scores
    on; none if weights are those of the softmax."""
    choice = flow.maker(weights, "aten.where.self")
    zeros = flow.maker(choice.inputs[1], "aten.full_like.default") if choice else None
    if choice is None or zeros is None or zeros.inputs[1] != 0:
        return ()
    last = flow.maker(choice.inputs[0], "aten.logical_not.default")
    if last is None:  # the greatest score is -inf
        test = flow.maker(choice.inputs[0], "aten.eq.Scalar")
        greatest = flow.maker(test.inputs[0], "aten.amax.default") if test else None
        if test is None or greatest is None or not _is_of_rows(greatest, test):
            return ()
        return greatest, test, zeros, choice
    some = flow.maker(last.inputs[0], "aten.any.dim")  # none is not -inf
    seen = flow.maker(some.inputs[0], "aten.logical_not.default") if some else None
    test = flow.maker(seen.inputs[0], "aten.eq.Scalar") if seen else None
    if some is None or seen is None or test is None or not _is_of_rows(some, test):
        return ()
    return test, seen, some, last, zeros, choice


def _is_of_rows(reduction: Call, test: Call) -> bool:
    """Whether a reduction is over the last dim, which it keeps, and a test is for -inf."""
    _, dims, keeps, *_ = reduction.inputs
    last = _rank(reduction.inputs[0]) - 1
    is_last = dims in (-1, last) or items_of(dims) in ((-1,), (last,))
    return is_last and keeps is True and test.inputs[1] == -math.inf


@dataclass(frozen=True, slots=True)
class _Scores:
    """scale · q · kᵀ + mask: the product's call, and all calls that compute it."""

    product: Call
    calls: tuple[Call, ...]
    scale: float = 1.0
    mask: Tensor | None = None
    masked: Shape = ()  # shape of the scores that the mask is added to
    is_safe: bool = False  # queries that see no key have weights of zero


def _scores(flow: Flow, value: Value) -> _Scores | None:
    value, views = flow.behind_views(value)
    if product := flow.maker(value, _BMM):
        return _Scores(product, (*views, product))
    if scaled := _scaled(flow, value):
        call, inner, factor = scaled
        found = _scores(flow, inner)
        if found and found.mask is None:  # a mask would be scaled too
            return replace(found, calls=(*views, call, *found.calls), scale=found.scale * factor)
    total = flow.maker(value, "aten.add.Tensor")
    if total is None or total.inputs[2] != 1:
        return None
    for inner, mask in (total.inputs[:2], total.inputs[1::-1]):
        found = _scores(flow, inner) if isinstance(mask, Tensor) and mask is not inner else None
        if found and found.mask is None and shape_of(inner) == shape_of(value):
            assert isinstance(mask, Tensor)
            calls = (*views, total, *found.calls)
            return replace(found, calls=calls, mask=mask, masked=shape_of(value) or ())
    return None


def _scaled(flow: Flow, value: Value) -> tuple[Call, Value, float] | None:
    """The product of a tensor and a constant number that makes a value: (call, tensor, number)."""
    if call := flow.maker(value, "aten.mul.Tensor"):
        for x, other in (call.inputs[:2], call.inputs[1::-1]):
            if (number := constant_number(flow, other)) is not None and shape_of(x) == shape_of(value):
                return call, x, number
    if call := flow.maker(value, "aten.div.Tensor"):
        number = constant_number(flow, call.inputs[1])
        if number and shape_of(call.inputs[0]) == shape_of(value):
            return call, call.inputs[0], 1 / number
    return None


def _replacement(flow: Flow, product: Call, calls: tuple[Call, ...], found: _Scores) -> Iterator[Replacement]:
    matrices = (*found.product.inputs, product.inputs[1])
    q, k, v = (_by_heads(flow, value) for value in matrices)
    (batch, heads, steps, width), (*_, keys) = q.shape, k.shape
    shapes = [(batch, heads, steps, width), (batch, heads, width, keys), (batch, heads, keys, v.shape[3])]
    mask, dtype = found.mask, dtype_of(product.outputs[0])
    is_float = isinstance(dtype, DType) and dtype.is_float
    if [q.shape, k.shape, v.shape] != shapes or not is_float or v.scale != 1:
        return
    if any(dtype_of(value) is not dtype for value in matrices):
        return
    if mask is not None and not _fits(mask, (batch, heads, steps, keys), found.masked):
        return
    k = replace(k, steps=(*k.steps, "permute", 4, 0, 1, 3, 2))
    arguments = [item for each in (q, k, v) for item in (each.tensor, ValueList(-1, each.steps))]
    last, tail = _permuted_result(flow, product, (batch, heads, steps, v.shape[3]))
    steps_first = 0 if last is product else _rank(last.outputs[0])
    ending = mask, found.scale * q.scale * k.scale, found.is_safe, steps_first
    new = Call(last.node, OPERATORS[_NAME], (*arguments, *ending), last.outputs)
    yield Replacement((*calls, product, *tail), new)


@dataclass(frozen=True, slots=True)
class _Source:
    """A tensor, the steps from it to four dims, a factor, and the maximum shape after the steps."""

    tensor: Value
    steps: tuple[Any, ...]
    scale: float
    shape: Shape


def _by_heads(flow: Flow, value: Value) -> _Source:
    """Where a batch of matrices comes from, with batches and heads apart if a view has merged them."""
    steps: tuple[Any, ...] = ("unsqueeze", 1, 0)
    merged = shape_of(value) or ()
    shape = (1, *merged)
    for view in flow.behind_views(value)[1]:
        apart = shape_of(view.inputs[0]) or ()
        if len(apart) == 4 and (apart[0] * apart[1], *apart[2:]) == merged:
            value, steps, shape = view.inputs[0], (), apart
            break
    scale = 1.0
    while (before := _step(flow, value)) and flow.is_fixed(before.tensor):
        value, steps, scale = before.tensor, (*before.steps, *steps), scale * before.scale
    return _Source(value, steps, scale, shape)


def _step(flow: Flow, value: Value) -> _Source | None:
    """The tensor before the call that makes a value, if that call only moves or scales elements."""
    if scaled := _scaled(flow, value):
        return _Source(scaled[1], (), scaled[2], ())
    makers = flow.makers.get(value.id, ()) if isinstance(value, Tensor) else ()
    if len(makers) != 1 or dtype_of(makers[0].inputs[0]) is not dtype_of(value):
        return None
    (call,) = makers
    x, *arguments = call.inputs
    steps = _STEPS[call.operator.name](x, *arguments) if call.operator.name in _STEPS else None
    return None if steps is None else _Source(x, steps, 1.0, ())


def _permuted(x: Value, dims: Value) -> tuple[Any, ...]:
    order = [axis(dim, len(items_of(dims))) for dim in items_of(dims)]  # type: ignore[arg-type]
    return "permute", len(order), *order


def _selected(x: Value, dim: Value, index: Value) -> tuple[Any, ...] | None:
    return ("select", 2, axis(dim, _rank(x)), index) if isinstance(index, int) else None  # type: ignore[arg-type]


def _sliced(x: Value, dim: Value, start: Value, end: Value, step: Value) -> tuple[Any, ...] | None:
    is_plain = step == 1 and not isinstance(start, SymInt) and not isinstance(end, SymInt)
    return ("slice", 3, axis(dim, _rank(x)), start, end) if is_plain else None  # type: ignore[arg-type]


def _squeezed(x: Value, dims: Value) -> tuple[Any, ...]:
    """As selections: the maximum shape says which dims are squeezed."""
    shape = shape_of(x) or ()
    dropped = {axis(dim, len(shape)) for dim in items_of(dims)}  # type: ignore[arg-type]
    return tuple(
        part for dim in sorted(dropped, reverse=True) if shape[dim] == 1 for part in ("select", 2, dim, 0)
    )


# By operator: the steps that it takes, as the arguments of `attention_of_views` have them.
_STEPS: dict[str, Callable[..., tuple[Any, ...] | None]] = {
    _VIEW: lambda x, sizes: ("view", len(items_of(sizes)), *items_of(sizes)),
    _PERMUTE: _permuted,
    "aten.select_copy.int": _selected,
    "aten.slice_copy.Tensor": _sliced,
    "aten.unsqueeze_copy.default": lambda x, dim: ("unsqueeze", 1, axis(dim, _rank(x) + 1)),
    "aten.squeeze_copy.dims": _squeezed,
    "aten.clone.default": lambda x, *_: (),
    "aten.expand_copy.default": lambda x, sizes, *_: () if shape_of(x) == tuple(items_of(sizes)) else None,
}


def _rank(value: Value) -> int:
    return len(shape_of(value) or ())


def _last(value: Value) -> Shape:
    return (shape_of(value) or ())[-1:]


def _fits(mask: Tensor, shape: Shape, scores: Shape) -> bool:
    """Whether a mask, added to scores of a shape, broadcasts to [batch, heads, steps, keys]."""
    batch, heads, *matrix = shape
    sizes = (1,) * (4 - len(mask.shape_max)) + mask.shape_max
    fits = len(sizes) == 4 and all(size in (1, to) for size, to in zip(sizes, shape, strict=True))
    is_apart = without_ones(scores) == without_ones(shape)
    is_merged = scores == (batch * heads, *matrix) and sizes[1] == 1  # else its first dim is of both
    return fits and (is_apart or is_merged) and mask.dtype.is_float


def _permuted_result(flow: Flow, product: Call, shape: Shape) -> tuple[Call, tuple[Call, ...]]:
    """The call that makes the result with steps before heads, and those from the product to it; the product
    itself if there is none."""
    tail: list[Call] = []
    value = product.outputs[0]
    while isinstance(value, Tensor) and value.id not in flow.outputs:
        readers = flow.readers.get(value.id, ())
        if len(readers) != 1:
            break
        (call,) = readers
        tail.append(call)
        dims = _permuted(*call.inputs)[2:] if call.operator.name == _PERMUTE else ()
        is_whole = shape_of(value) == shape and dims == _SWAP
        if is_whole or (shape_of(value) == shape[1:] and shape[0] == 1 and dims == (1, 0, 2)):
            return call, tuple(tail)
        if call.operator.name not in (_VIEW, "aten.clone.default"):
            break
        value = call.outputs[0]
    return product, ()
