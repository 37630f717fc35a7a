"""A graph and its calls -> lists of values, operators, nodes and calls; the dims that vary; histograms of
constants."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.errors import PteronError
from pteron.format.source import contents
from pteron.graph import Constant, Graph, Shape, SymInt, Tensor, Value, ValueList
from pteron.ops import OPERATORS, Call
from pteron.ops.call import mutated_ids
from pteron.passes.resolve import resolve
from pteron.plan import Compiled
from pteron.tools.graph_structure import family_of_operator, leaves
from pteron.tools.inputs import as_float
from pteron.tools.inspect.page.details import (
    CallDetails,
    HistogramDetails,
    NodeDetails,
    OperatorDetails,
    ValueDetails,
)

UNKNOWN = "unknown"  # the family of unsupported operators
BINS = 64
_PLACES = 16  # samples of a large constant, evenly spaced
_PLACE_BYTES = 4096
_PIECE_BYTES = 1 << 22  # read at a time
_TRIED_MAX = 100_000  # tried sizes times calls


def describe_operator(name: str) -> OperatorDetails:
    known = OPERATORS.get(name)
    names = tuple(argument.name for argument in known.signature.arguments) if known else ()
    return OperatorDetails(name, family_of_operator(name) or UNKNOWN, names, known is not None)


def describe_nodes(graph: Graph, operators: dict[str, int]) -> tuple[NodeDetails, ...]:
    """The graph's nodes. If all operators are known, in-place changes count as writes. New operators are
    added to `operators`, with their position."""
    try:
        mutated = [_ids(*call.mutated) for call in resolve(graph)]
    except PteronError:
        mutated = [()] * len(graph.nodes)
    return tuple(
        NodeDetails(
            operators.setdefault(node.name, len(operators)),
            tuple(map(_argument, node.args)),
            reads=_ids(*node.args[:-1]),
            writes=tuple(dict.fromkeys((*_ids(node.args[-1]), *changed))),
        )
        for node, changed in zip(graph.nodes, mutated, strict=True)
    )


def describe_calls(
    calls: Sequence[Call], once: Collection[Call], operators: dict[str, int]
) -> tuple[CallDetails, ...]:
    """The calls after rewrites; those in `once` depend only on constants."""
    return tuple(
        CallDetails(
            node=call.node.index,
            nodes=call.nodes,
            operator=operators.setdefault(call.operator.name, len(operators)),
            arguments=tuple(map(_argument, (*call.inputs, *call.outputs))),
            reads=_ids(*call.inputs),
            writes=_ids(*call.outputs, *call.mutated),
            is_once=call in once,
        )
        for call in calls
    )


def describe_values(
    graph: Graph, calls: Sequence[Call], dynamic: Mapping[int, tuple[int, ...]]
) -> tuple[tuple[ValueDetails, ...], tuple[Constant, ...]]:
    """The values of a graph and its calls in order of their first use, and their constants."""
    states = mutated_ids(calls)
    arguments = [value for node in graph.nodes for value in node.args]
    arguments += [value for call in calls for value in (*call.inputs, *call.outputs)]
    met: dict[int, Tensor | SymInt] = {}
    for value in leaves(*graph.inputs, *graph.outputs, *arguments):
        met.setdefault(value.id, value)
    places: dict[Constant, int] = {}
    values = []
    for value in met.values():
        if isinstance(value, SymInt):
            values.append(ValueDetails(value.id, None, (), (), None, False))
            continue
        place = None if value.constant is None else places.setdefault(value.constant, len(places))
        dims, is_state = dynamic.get(value.id, ()), value.id in states
        values.append(ValueDetails(value.id, str(value.dtype), value.shape_max, dims, place, is_state))
    return tuple(values), tuple(places)


def _ids(*values: Value) -> tuple[int, ...]:
    return tuple(dict.fromkeys(value.id for value in leaves(*values)))


def _argument(value: Value) -> Any:
    if isinstance(value, (Tensor, SymInt)):
        return {"value": value.id}
    if isinstance(value, (ValueList, tuple)):
        return [_argument(item) for item in (value.items if isinstance(value, ValueList) else value)]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # not in JSON
    return value


# Dims that vary ---------------------------------------------------------------------------------


def dynamic_dims(compiled: Compiled, free: Sequence[Sequence[bool] | None]) -> dict[int, tuple[int, ...]]:
    """The dims that vary with an input's size or a live integer, by tensor id. `free` has the dynamic dims of
    each input, None if unknown."""
    inputs = compiled.prepared.graph.inputs
    tensors = [value for value in inputs if isinstance(value, Tensor)]
    dims = {
        value.id: tuple(dim for dim, is_free in enumerate(known or ()) if is_free)
        for value, known in zip(inputs, free, strict=True)
        if isinstance(value, Tensor)
    }
    at_most = {tensor.id: tensor.shape_max for tensor in tensors}
    zeros = dict.fromkeys((source.symbol for source in compiled.executable.sources), 0)
    sizes = {tensor.shape_max[dim] for tensor in tensors for dim in dims[tensor.id]}
    # One less may round to the same size, and much less may not be valid.
    tried = [(size, less) for size in sorted(sizes) for less in dict.fromkeys((size - 1, size // 2, 1))]
    walks = [(_with_size(tensors, dims, size, less), zeros) for size, less in tried]
    walks += [(at_most, {**zeros, symbol: 1}) for symbol in zeros]
    if len(walks) * len(compiled.prepared.each) > _TRIED_MAX:
        return {id: found for id, found in dims.items() if found}
    whole = _shapes(compiled, at_most, zeros)
    varying: dict[int, set[int]] = {id: set(found) for id, found in dims.items()}
    for shapes, values in walks:
        for id, shape in _shapes(compiled, shapes, values).items():
            if len(whole.get(id, ())) == len(shape):
                changed = {dim for dim, size in enumerate(shape) if size != whole[id][dim]}
                varying.setdefault(id, set()).update(changed)
    return {id: tuple(sorted(found)) for id, found in varying.items() if found}


def _with_size(
    tensors: Sequence[Tensor], dims: Mapping[int, Sequence[int]], size: int, other: int
) -> dict[int, Shape]:
    """The inputs' shapes with every free dim of one size set to another: equal sizes stay equal."""
    return {
        tensor.id: tuple(
            other if each == size and dim in dims[tensor.id] else each
            for dim, each in enumerate(tensor.shape_max)
        )
        for tensor in tensors
    }


def _shapes(
    compiled: Compiled, shapes: Mapping[int, Shape], values: Mapping[int, int]
) -> Mapping[int, Shape]:
    """The shapes of all tensors for these input shapes; empty if they are invalid."""
    inputs = compiled.prepared.graph.inputs
    try:
        return compiled.shapes(tuple(shapes.get(value.id) for value in inputs), values)
    except PteronError:
        return {}


# Histograms -------------------------------------------------------------------------------------


def histogram(constant: Constant, *, is_whole: bool, bits: int | None = None) -> HistogramDetails | None:
    """The histogram of a constant's elements, or of the `bits`-bit numbers packed into them; None if no
    element is finite. `is_whole` reads all elements instead of a sample."""
    size = constant.dtype.itemsize
    elements = len(constant.data) // size * (8 * size // bits if bits else 1)
    parts = [_numbers(constant, view, bits) for view in _views(constant, is_whole)]
    if not is_whole and parts:
        parts = [np.concatenate(parts)]
    looked_at = sum(map(len, parts))
    parts = [finite for part in parts if len(finite := part[np.isfinite(part)])]
    if not parts:
        return None
    count = sum(map(len, parts))
    low, high = min(float(part.min()) for part in parts), max(float(part.max()) for part in parts)
    bins = 1 << bits if bits else BINS
    edges = (-0.5, bins - 0.5) if bits else (low, high)
    scale = 1.0 if np.isfinite(edges[1] - edges[0]) else 0.25  # prevents overflow of the largest f64 range
    limits = (edges[0] * scale, edges[1] * scale)
    counts = np.sum([np.histogram(part * scale, bins, limits)[0] for part in parts], axis=0)
    return HistogramDetails(
        counts=tuple(counts.tolist()),
        low=low,
        high=high,
        mean=sum(float((part / count).sum()) for part in parts),
        looked_at=looked_at,
        elements=elements,
        not_finite=looked_at - count,
        bits=bits,
    )


def _views(constant: Constant, is_whole: bool) -> Iterator[memoryview]:
    data = constant.data
    if is_whole or len(data) <= _PLACES * _PLACE_BYTES:
        for start in range(0, len(data), _PIECE_BYTES):
            yield contents(data[start : start + _PIECE_BYTES])
        return
    step = (len(data) - _PLACE_BYTES) // (_PLACES - 1) // 8 * 8  # aligned to elements of any type
    for place in range(_PLACES):
        yield contents(data[place * step : place * step + _PLACE_BYTES])


def _numbers(constant: Constant, view: memoryview, bits: int | None) -> npt.NDArray[np.float64]:
    if bits == 4:
        packed = np.frombuffer(view, np.uint8)
        return np.stack([packed & 15, packed >> 4], axis=-1).reshape(-1).astype(np.float64)
    with np.errstate(invalid="ignore"):  # signalling NaNs warn
        return as_float(np.frombuffer(view, constant.dtype.numpy), constant.dtype)
