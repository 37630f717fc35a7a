"""The operators Pteron knows, by the names exported graphs use.

An operator is a signature, a shape rule and the dispatches that compute it. Adding one to a family
is one `define` line; docs/add-an-operator.md shows the whole way.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from pteron.ops.dispatch import Dispatch
from pteron.ops.operand import RequirementError
from pteron.ops.signature import Signature, parse

# Operators are written against the values their signature names, so these stay open.
ShapeRule: TypeAlias = Callable[..., Any]
Dispatches: TypeAlias = Callable[..., Iterable[Dispatch]]


@dataclass(frozen=True, slots=True)
class Target:
    """What of the device a plan may depend on."""

    shader_f16: bool = False
    subgroup_size: int = 0  # 0: subgroup operations are not to be used
    is_cpu: bool = True  # a software adapter: barriers are costly there, cache lines are not
    workgroups_max: int = 65535  # per axis
    workgroup_bytes_max: int = 16384
    binding_bytes_max: int = 1 << 27


@dataclass(frozen=True, slots=True)
class Operator:
    """What an operator means."""

    name: str
    signature: Signature
    shape: ShapeRule | None
    dispatches: Dispatches
    is_view: bool = False  # the output has its input's elements in order: it may share the input's buffer
    is_prepack: bool = False  # a view of a constant that also gives mutated tensors their initial value
    is_scalar: bool = False  # computes a live integer from others; `dispatches` returns it
    is_commutative: bool = False  # the order of its inputs does not matter
    is_source: bool = False  # reads a live integer from an input of the graph
    takes_target: bool = False


OPERATORS: dict[str, Operator] = {}


def define(
    name: str, signature: str, *, shape: ShapeRule | None, dispatches: Dispatches, **traits: bool
) -> Operator:
    """Register an operator. `shape(*inputs)` gives the output's shape, or one shape per output;
    `dispatches(*inputs, *outputs)` yields what computes them."""
    if name in OPERATORS:
        raise ValueError(f"operator {name} is defined twice")
    takes_target = "target" in inspect.signature(dispatches).parameters
    operator = Operator(name, parse(signature), shape, dispatches, takes_target=takes_target, **traits)
    OPERATORS[name] = operator
    return operator


def op(name: str, signature: str, *, shape: ShapeRule) -> Callable[[Dispatches], Dispatches]:
    """`define` as a decorator of the function that yields the dispatches."""

    def register(dispatches: Dispatches) -> Dispatches:
        define(name, signature, shape=shape, dispatches=dispatches)
        return dispatches

    return register


def require(condition: bool, message: str, *operands: object) -> None:
    """Raise a RequirementError that shows the operands, unless the condition holds."""
    if not condition:
        shown = ", ".join(map(str, operands))
        raise RequirementError(f"{message}; got {shown}" if operands else message)


def same_shape(x: Any, *_: Any) -> Any:
    """The shape rule of operators that keep their first input's shape."""
    return x.shape
