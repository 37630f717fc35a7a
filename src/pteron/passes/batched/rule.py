"""The table of batching rules by operator, and the checks that they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pteron.families  # noqa: F401  # registers the operators
from pteron.graph import Node, Shape, Tensor, Value
from pteron.graph.values import tensors
from pteron.ops import OPERATORS
from pteron.passes.batched.builder import BatchedGraphBuilder, NotBatchableError

Rule: TypeAlias = Callable[[BatchedGraphBuilder, Node], None]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the function that adds the batched form of a node of these operators."""

    def register(function: Rule) -> Rule:
        for name in names:
            assert name in OPERATORS, name
            RULES[name] = function
        return function

    return register


def refuse_unless(holds: bool, reason: str) -> None:
    """Raise a NotBatchableError with the reason unless the condition holds."""
    if not holds:
        raise NotBatchableError(reason)


def shape_of(value: Value) -> Shape:
    assert isinstance(value, Tensor)
    return value.shape_max


def leads(walk: BatchedGraphBuilder, value: Value) -> int:
    """The dim of rows of a tensor whose earlier dims are all 1, so that each row is contiguous."""
    dim = walk.row_dim(value)
    refuse_unless(all(size == 1 for size in shape_of(value)[:dim]), f"{value} does not keep rows together")
    return dim


def dim_of(value: Value, rank: int) -> int:
    """A dim argument, counted from the front."""
    refuse_unless(isinstance(value, int), "a dim is not a number")
    assert isinstance(value, int)
    return value % rank if rank else 0


def along(walk: BatchedGraphBuilder, node: Node) -> None:
    """Every output has its rows in the dim of the first input's."""
    dim = walk.row_dim(node.args[0])
    for output in tensors(node.args[-1]):
        walk.give_rows(output, dim)
    walk.keep(node)
