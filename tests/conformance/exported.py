"""Exported programs of the suites: their delegates, their tensors as arrays, and inputs at live sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import torch
import torch._export.utils as torch_export
from torch.utils._pytree import tree_leaves

from conformance.record import Array
from pteron.export.lowering import cache_patterns

UNBOUNDED = 1000  # a dim without a maximum is taken to have this one, as upstream's harness does
cache_patterns()

# Every decomposition looks all operators up many times over, lest one was registered since. None is.
torch_export._materialize_cpp_cia_ops = cache(torch_export._materialize_cpp_cia_ops)


def delegates_of(program: Any) -> list[str]:
    """The delegates that a program calls, by backend."""
    return [delegate.id for plan in program.executorch_program.execution_plan for delegate in plan.delegates]


def to_arrays(values: Any) -> tuple[Array, ...]:
    """The tensors and numbers of a nest, flat, as NumPy holds them."""
    return tuple(torch.as_tensor(value).detach().contiguous().numpy() for value in tree_leaves(values))


def live_inputs(exported: Any, inputs: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """The inputs cut down to the smallest sizes, and to sizes in between.

    Cutting keeps the values: an index stays within its table, a scale positive. Sizes above those of `inputs`
    are left out.
    """
    names = set(exported.graph_signature.user_inputs)
    values = [
        node.meta["val"] for node in exported.graph.nodes if node.op == "placeholder" and node.name in names
    ]
    if len(values) != len(inputs):
        return
    shapes = [tuple(value.shape) if isinstance(value, torch.Tensor) else () for value in values]
    ranges = {
        symbol: bounds for symbol, bounds in exported.range_constraints.items() if _occurs(symbol, shapes)
    }
    if not ranges:
        return
    seen = set()
    for part in (0.0, 0.37, 0.71):
        sizes = {symbol: _between(bounds, part) for symbol, bounds in ranges.items()}
        live = [_shape_at(shape, sizes) for shape in shapes]
        fits = all(
            size <= most
            for shape, given in zip(live, inputs, strict=True)
            for size, most in zip(shape, getattr(given, "shape", ()), strict=True)
        )
        if fits and str(live) not in seen:
            seen.add(str(live))
            yield tuple(_cut(given, shape) for given, shape in zip(inputs, live, strict=True))


def _occurs(symbol: Any, shapes: Sequence[tuple[Any, ...]]) -> bool:
    return any(symbol in size.node.expr.free_symbols for shape in shapes for size in shape if _is_live(size))


def _is_live(size: Any) -> bool:
    return isinstance(size, torch.SymInt)


def _between(bounds: Any, part: float) -> int:
    least = max(int(bounds.lower), 1)
    most = int(bounds.upper) if bounds.upper < UNBOUNDED else max(UNBOUNDED, least)
    return least + int(part * (most - least))


def _shape_at(shape: tuple[Any, ...], sizes: Mapping[Any, int]) -> tuple[int, ...]:
    return tuple(int(size.node.expr.subs(sizes)) if _is_live(size) else int(size) for size in shape)


def _cut(value: Any, shape: tuple[int, ...]) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value[tuple(slice(size) for size in shape)].contiguous()
