"""A step that ran on a GPU -> the outputs of its nodes by the float64 references, on the same inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from pteron.dtypes import DType
from pteron.graph import Node, SymInt, Tensor, Value, ValueList
from pteron.ops import OPERATORS
from pteron.reference import find
from pteron.tools.compare.steps import Array, NoReferenceError, StepRecord


def float64(record: StepRecord) -> Mapping[int, Array | int]:
    """The values that the nodes of a step write, by id: arrays of float64, int64 or bool, and live
    integers."""
    evaluator = _Evaluator(record)
    for node in record.step.nodes:
        evaluator.run(node)
    made = evaluator.made.items()
    return {id: value.numpy() if isinstance(value, torch.Tensor) else value for id, value in made}


@dataclass(slots=True)
class _Evaluator:
    record: StepRecord
    made: dict[int, Any] = field(default_factory=dict)

    def run(self, node: Node) -> None:
        function = find(node.name)
        if function is None:
            raise NoReferenceError(f"{node.name} has no reference")
        *inputs, output = node.args
        declared = OPERATORS[node.name].signature.arguments
        arguments = [self._value(value) for value in inputs]
        for position, argument in enumerate(declared):
            value = inputs[position]
            if argument.mutated and isinstance(value, Tensor):
                arguments[position] = self.made[value.id] = arguments[position].clone()
        try:
            results = function(*arguments)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            problem = f"the reference of {node.name} does not take these arguments: {error}"
            raise NoReferenceError(problem.partition("\n")[0]) from error
        self._keep(output, results)

    def _keep(self, output: Value, results: Any) -> None:
        items = output.items if isinstance(output, ValueList) else (output,)
        several = results if isinstance(results, (tuple, list)) else (results,)
        for item, result in zip(items, several, strict=False):
            if isinstance(item, Tensor):
                self.made[item.id] = as_type(torch.as_tensor(result), item.dtype)
            elif isinstance(item, SymInt):
                self.made[item.id] = int(result)

    def _value(self, value: Value) -> Any:
        if isinstance(value, ValueList):
            return [self._value(item) for item in value.items]
        if isinstance(value, tuple):
            return list(value)
        if not isinstance(value, (Tensor, SymInt)):
            return value
        if value.id not in self.made:  # as it was before the step
            known: Any = self.record.integers.get(value.id)
            if isinstance(value, Tensor):
                known = self.record.value(value)
            if known is None:
                raise NoReferenceError(f"the value of {value} is not known")
            self.made[value.id] = widened(known, value.dtype) if isinstance(value, Tensor) else known
        return self.made[value.id]


def widened(array: Array, dtype: DType) -> torch.Tensor:
    """An array in the types that references take."""
    wide = np.bool_ if dtype is DType.BOOL else np.float64 if dtype.is_float else np.int64
    return torch.from_numpy(np.array(array, wide))


def as_type(tensor: torch.Tensor, dtype: DType) -> torch.Tensor:
    """A result in its declared type; integers are truncated."""
    if dtype is DType.BOOL:
        return tensor != 0
    return tensor.to(torch.float64 if dtype.is_float else torch.int64)
