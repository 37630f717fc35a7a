"""What an operator is, and the table of those that Pteron knows, by the names exported graphs use.

An operator is a signature, a shape rule and the dispatches that compute it. Adding one to a family
is one `define` line: see docs/add-an-operator.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import Any, TypeAlias

from pteron.ops.dispatch import Dispatch, Indices
from pteron.ops.signature import Signature, parse
from pteron.ops.target import Target

# Operators are written against the values their signature names, so these stay open.
ShapeRule: TypeAlias = Callable[..., Any]
Compute: TypeAlias = Callable[..., Any]


class Kind(Enum):
    """What a call of an operator does."""

    COMPUTE = auto()  # kernels over tensors
    VIEW = auto()  # the output has its input's elements in order: it may share the input's buffer
    PREPACK = auto()  # a view of a constant that also gives mutated tensors their initial value
    SCALAR = auto()  # a live integer computed from others, on the host
    SOURCE = auto()  # a live integer read from an input of the graph


@dataclass(frozen=True, slots=True)
class Operator:
    name: str
    signature: Signature
    kind: Kind
    shape: ShapeRule | None
    compute: Compute
    takes_target: bool

    @property
    def is_view(self) -> bool:
        return self.kind in (Kind.VIEW, Kind.PREPACK)

    @property
    def is_internal(self) -> bool:
        """Whether only Pteron itself may call it: rewrites make such calls, files cannot. Those of generated
        programs end in `.default`."""
        return self.name.startswith("pteron.") and not self.name.endswith(".default")

    def dispatches(
        self, inputs: Sequence[object], outputs: Sequence[object], target: Target
    ) -> Iterable[Dispatch | Indices]:
        """What computes the outputs on a device of this kind."""
        extra = {"target": target} if self.takes_target else {}
        result: Iterable[Dispatch | Indices] = self.compute(*inputs, *outputs, **extra)
        return result


OPERATORS: dict[str, Operator] = {}
_signature = cache(inspect.signature)  # operators share their functions


def define(
    name: str, signature: str, *, shape: ShapeRule | None, compute: Compute, kind: Kind = Kind.COMPUTE
) -> Operator:
    """Register an operator. `shape(*inputs)` gives the output's shape, or one shape per output;
    `compute(*inputs, *outputs)` yields the dispatches; it may take `target=` too."""
    if name in OPERATORS:
        raise ValueError(f"operator {name} is defined twice")
    takes_target = "target" in _signature(compute).parameters
    OPERATORS[name] = Operator(name, parse(signature), kind, shape, compute, takes_target)
    return OPERATORS[name]


def op(name: str, signature: str, *, shape: ShapeRule) -> Callable[[Compute], Compute]:
    """`define` as a decorator of the function that yields the dispatches."""

    def register(compute: Compute) -> Compute:
        define(name, signature, shape=shape, compute=compute)
        return compute

    return register


def same_shape(x: Any, *_: Any) -> Any:
    """The shape rule of operators that keep their first input's shape."""
    return x.shape
