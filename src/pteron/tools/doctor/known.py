"""Known answers: the values of a graph's tensors by the float64 references, on numbers that every machine
computes alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pteron.graph import Graph, Node, Tensor
from pteron.graph.values import tensors
from pteron.ops import OPERATORS
from pteron.tools.compare.steps import Step, StepRecord

Array: TypeAlias = npt.NDArray[Any]
_MULTIPLIER = 2654435761  # of Knuth's hash


def hashed(count: int, limit: int = 0, first: int = 0) -> Array:
    """Numbers of a tensor: floats from -1 to 1, or integers from 0 to below a limit. The player of web/
    computes the same."""
    mixed = (np.arange(first, first + count, dtype=np.uint64) * _MULTIPLIER & 0xFFFFFFFF) >> 8
    return mixed.astype(np.float64) / (1 << 23) - 1 if limit == 0 else (mixed % limit).astype(np.int64)


def known_values(graph: Graph, inputs: Mapping[int, Array], integers: Mapping[int, int]) -> dict[int, Array]:
    """What the nodes of a graph write, by the ids of tensors: in float64, int64 or bool. `inputs` has the
    graph's inputs, and states that earlier calls left. The values do not depend on a plan."""
    from pteron.tools.compare.float64 import float64  # imports PyTorch

    nodes = Step((), left_out=graph.nodes)
    shapes = {id: array.shape for id, array in inputs.items()}
    made = float64(StepRecord(graph, nodes, inputs, {}, (), {}, integers, shapes))
    return {tensor.id: np.asarray(made[tensor.id]) for node in graph.nodes for tensor in written(node)}


def written(node: Node) -> Iterator[Tensor]:
    """The tensors that a node writes: its outputs, and states."""
    *inputs, output = node.args
    yield from tensors(output)
    for argument, value in zip(OPERATORS[node.name].signature.arguments, inputs, strict=True):
        if argument.mutated and isinstance(value, Tensor):
            yield value
