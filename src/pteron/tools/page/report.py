"""What the page shows, and `inspect --json --plan` prints: plain data that refers to itself by numbers.

A value is named by its id in the graph, a node by its index; operators, constants and kernels by their places
in the lists of the delegate or program they belong to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pteron.graph import Shape

# A scalar as it is; {"value": id}; or a list of these.
ArgumentInside: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class HistogramInside:
    """How a constant's elements are spread, by as many of them as were looked at."""

    counts: tuple[int, ...]
    low: float
    high: float
    mean: float
    looked_at: int
    elements: int
    not_finite: int
    bits: int | None  # of the numbers that were packed into its elements


@dataclass(frozen=True, slots=True)
class ConstantInside:
    """Bytes of the file that a tensor starts from."""

    key: str
    type: str
    bytes: int
    is_given: bool  # whether they are in the files given
    histogram: HistogramInside | None


@dataclass(frozen=True, slots=True)
class ValueInside:
    """A tensor, or (no dtype) a live integer."""

    id: int
    dtype: str | None
    shape_max: Shape
    dynamic: tuple[int, ...]  # the dims that vary
    constant: int | None
    is_state: bool


@dataclass(frozen=True, slots=True)
class OperatorInside:
    """An operator that nodes or calls name."""

    name: str
    family: str
    arguments: tuple[str, ...]
    is_available: bool


@dataclass(frozen=True, slots=True)
class NodeInside:
    """A node as the file has it."""

    operator: int
    arguments: tuple[ArgumentInside, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CallInside:
    """A call after rewrites, and the nodes whose work it does. One that is made once runs at load."""

    node: int
    nodes: tuple[int, ...]
    operator: int
    arguments: tuple[ArgumentInside, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    is_once: bool


@dataclass(frozen=True, slots=True)
class BindingInside:
    """A buffer of a launch. `kind` is slot, state, scratch or weight; `place` is which of them."""

    name: str
    access: str
    kind: str
    place: int
    bytes: int


@dataclass(frozen=True, slots=True)
class LaunchInside:
    """A dispatch of a plan."""

    node: int
    nodes: tuple[int, ...]
    operator: str
    kernel: int
    groups: tuple[int, int, int]
    buffers: tuple[BindingInside, ...]
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MemoryInside:
    """Bytes of GPU memory. What is reserved is there for as long as the program; `activations` and `scratch`
    are in use at each launch, at the live shapes."""

    weights: int
    states: int
    activations_reserved: int
    scratch_reserved: int
    activations: tuple[int, ...]
    scratch: tuple[int, ...]
    peak_launch: int | None  # the first that uses most
    peak_bytes: int  # that it uses, weights and states included


@dataclass(frozen=True, slots=True)
class PlanInside:
    """A plan at live shapes; `problem` says why there is none, and then it has no launches."""

    title: str
    inputs: tuple[str, ...]
    shapes: Mapping[int, Shape]  # of the tensors that are not at their maximum, by id
    launches: tuple[LaunchInside, ...]
    memory: MemoryInside | None
    notes: tuple[str, ...]
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class DelegateInside:
    """A delegate: its graph where it could be read, calls and plans where it could be compiled."""

    name: str
    backend: str
    bytes: int
    problems: tuple[str, ...]
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    values: tuple[ValueInside, ...] = ()
    constants: tuple[ConstantInside, ...] = ()
    operators: tuple[OperatorInside, ...] = ()
    nodes: tuple[NodeInside, ...] = ()
    calls: tuple[CallInside, ...] | None = None
    repetitions: tuple[tuple[tuple[int, int], ...], ...] = ()  # nodes [first, end) of alike blocks
    plans: tuple[PlanInside, ...] = ()


@dataclass(frozen=True, slots=True)
class InstructionInside:
    """A step of a method: a call of a delegate, or something that the host does."""

    kind: str
    text: str
    delegate: int | None


@dataclass(frozen=True, slots=True)
class MethodInside:
    """An entry point. Its outputs are types, or the values of a method that only gives constants."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    instructions: tuple[InstructionInside, ...]
    delegates: tuple[DelegateInside, ...]


@dataclass(frozen=True, slots=True)
class KernelInside:
    """A kernel's text, where there is room for it, and how many invocations a workgroup has."""

    name: str
    workgroup: tuple[int, int, int]
    source: str | None


@dataclass(frozen=True, slots=True)
class ProgramInside:
    """A program as the page shows it. `planned_for` says which device its plans are made for."""

    name: str
    kind: str
    bytes: int
    adapter: str | None
    planned_for: str
    problems: tuple[str, ...]
    methods: tuple[MethodInside, ...]
    kernels: tuple[KernelInside, ...]
