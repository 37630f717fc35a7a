"""A compiled graph -> the dims of its tensors that vary with an input's size or a live integer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pteron.errors import PteronError
from pteron.graph import Shape, SymInt, Tensor
from pteron.plan import Compiled

_TRIED_MAX = 100_000  # tried sizes times calls


def dynamic_dims(compiled: Compiled, free: Sequence[Sequence[bool] | None]) -> dict[int, tuple[int, ...]]:
    """The dims that vary, by tensor id. `free` has the dynamic dims of each input, None if unknown."""
    inputs = compiled.prepared.graph.inputs
    tensors = [value for value in inputs if isinstance(value, Tensor)]
    dims = {
        value.id: tuple(dim for dim, is_free in enumerate(known or ()) if is_free)
        for value, known in zip(inputs, free, strict=True)
        if isinstance(value, Tensor)
    }
    at_most = {tensor.id: tensor.shape_max for tensor in tensors}
    symbols = [source.symbol for source in compiled.executable.sources]
    sizes = {tensor.shape_max[dim] for tensor in tensors for dim in dims[tensor.id]}
    # One less may round to the same size, and much less may not be valid.
    tried = [(size, less) for size in sorted(sizes) for less in dict.fromkeys((size - 1, size // 2, 1))]
    walks: list[tuple[Mapping[int, Shape], Mapping[int, int]]]
    walks = [(_with_size(tensors, dims, size, less), {}) for size, less in tried]
    walks += [(at_most, {symbol: 1}) for symbol in symbols]
    if len(walks) * len(compiled.prepared.each) > _TRIED_MAX:
        return {id: found for id, found in dims.items() if found}
    whole = _shapes(compiled, at_most, dict.fromkeys(symbols, 0))
    varying: dict[int, set[int]] = {id: set(found) for id, found in dims.items()}
    for shapes, values in walks:
        walked = _shapes(compiled, {**at_most, **shapes}, {**dict.fromkeys(symbols, 0), **values})
        for id, shape in walked.items():
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
    live = tuple(None if isinstance(value, SymInt) else shapes[value.id] for value in inputs)
    try:
        return compiled.shapes(live, values)
    except PteronError:
        return {}
