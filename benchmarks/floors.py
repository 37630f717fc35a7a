"""The least time that bytes, dispatches and arithmetic take on a GPU whose rates are known.

Rates are what plain WGSL reaches with kernels that do nothing else, measured on the device itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from pteron.graph import Graph, Node, Tensor
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


def step_seconds(rates: Rates, plan: Plan, state_bytes: float) -> float:
    """A step of few rows: every weight is read once, and `state_bytes` of the states."""
    weights = {
        buffer
        for launch in plan.launches
        if not _is_lookup(launch)
        for buffer in launch.buffers
        if isinstance(buffer, Weight)
    }
    read = sum(weight.bytes for weight in weights) + state_bytes
    return read / rates.bytes + len(plan.launches) * rates.dispatch


def prefill_seconds(rates: Rates, graph: Graph, rows: int) -> float:
    """The matrix products of `rows` rows; the last product has one."""
    products = [node for node in graph.nodes if "linear" in node.name]
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
    return _tensors(node)[-1].shape_max[-1]


def _tensors(node: Node) -> list[Tensor]:
    return [value for value in node.args if isinstance(value, Tensor)]
