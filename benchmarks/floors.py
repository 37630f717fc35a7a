"""The least time that bytes, dispatches and arithmetic take on a GPU whose rates are known.

Rates are what plain WGSL reaches with kernels that do nothing else, measured on the device itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from pteron.graph import Constant, Graph, Node, Tensor
from pteron.ops import Weight
from pteron.plan import Plan
from pteron.plan.plan import Launch


@dataclass(frozen=True)
class Rates:
    """What a GPU does in a second."""

    bytes: float  # read from its memory
    dispatch: float  # seconds that a dispatch takes which depends on the one before
    f32: float  # operations, a fused multiply-add being two
    int8: float  # the same in packed dots of four


KNOWN = {"NVIDIA H200": Rates(4.6e12, 1.9e-6, 63.7e12, 110e12)}


def rates_of(adapter: str) -> Rates | None:
    """The rates of an adapter of this name; None if they were not measured."""
    return next((rates for name, rates in KNOWN.items() if name in adapter), None)


def step_seconds(rates: Rates, plan: Plan, graph: Graph, rows: int, state_bytes: float) -> float:
    """A step of few rows: every weight is read once, of experts at most those that `rows` rows can choose,
    and `state_bytes` of the states."""
    weights = {
        weight
        for launch in plan.launches
        if not _is_lookup(launch)
        for buffer in launch.buffers
        if isinstance(buffer, Weight)
        for weight in _each(buffer)
    }
    parts = dict(_parts_of_experts(graph, rows))
    read = sum(weight.bytes * parts.get(weight.constant, 1.0) for weight in weights) + state_bytes
    return read / rates.bytes + len(plan.launches) * rates.dispatch


def _each(weight: Weight) -> Iterator[Weight]:
    """The weights that share a buffer, each alone."""
    own = weight.count - sum(other.count for other in weight.rest)
    yield replace(weight, count=own, rest=())
    yield from weight.rest


def _parts_of_experts(graph: Graph, rows: int) -> Iterator[tuple[Constant, float]]:
    """The part of each constant of experts that `rows` rows read."""
    for node in graph.nodes:
        if _is_of_experts(node) and isinstance(node.args[1], Tensor):
            chosen, count = rows * node.args[1].shape_max[1], node.args[-2]
            assert isinstance(count, int)
            for tensor in _tensors(node):
                if tensor.constant:
                    yield tensor.constant, min(1.0, chosen / count)


def prefill_seconds(rates: Rates, graph: Graph, rows: int) -> float:
    """The matrix products of `rows` rows; the last product has one."""
    products = [node for node in graph.nodes if "linear" in node.name or _is_of_experts(node)]
    is_int8 = any("q8ta" in node.name or "dq8ca" in node.name for node in products)
    operations = [2 * _depth(node) * _columns(node) for node in products]
    total = rows * sum(operations[:-1]) + sum(operations[-1:])
    return total / (rates.int8 if is_int8 else rates.f32)


def _is_lookup(launch: Launch) -> bool:
    """Whether it reads only some rows of its weight."""
    return "embedding" in launch.operator


def _depth(node: Node) -> int:
    return _tensors(node)[0].shape_max[-1]


def _columns(node: Node) -> int:
    """Of a row of the first input: a token's experts count together."""
    shape = _tensors(node)[-1].shape_max
    return prod(shape[1:]) if _is_of_experts(node) else shape[-1]


def _is_of_experts(node: Node) -> bool:
    return "pteron.experts_" in node.name


def _tensors(node: Node) -> list[Tensor]:
    return [value for value in node.args if isinstance(value, Tensor)]
