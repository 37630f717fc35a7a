"""The data of the page, and of `inspect --json --plan`.

Values are referred to by their id in the graph, nodes by their index; operators, constants and kernels by
their position in the lists of their delegate or program. An argument is a scalar, {"value": id}, or a list of
these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pteron.graph import Shape


@dataclass(frozen=True, slots=True)
class HistogramDetails:
    """The histogram of a constant, by a sample of `looked_at` elements."""

    counts: tuple[int, ...]
    low: float
    high: float
    mean: float
    looked_at: int
    elements: int
    not_finite: int
    bits: int | None  # of the numbers packed into its elements


@dataclass(frozen=True, slots=True)
class ConstantDetails:
    key: str
    type: str
    bytes: int
    is_given: bool  # whether the given files contain it
    histogram: HistogramDetails | None


@dataclass(frozen=True, slots=True)
class ValueDetails:
    """A tensor, or a live integer (without dtype)."""

    id: int
    dtype: str | None
    shape_max: Shape
    dynamic: tuple[int, ...]  # dims that vary
    constant: int | None
    is_state: bool


@dataclass(frozen=True, slots=True)
class OperatorDetails:
    name: str
    family: str
    arguments: tuple[str, ...]
    is_available: bool


@dataclass(frozen=True, slots=True)
class NodeDetails:
    operator: int
    arguments: tuple[Any, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CallDetails:
    """A call after rewrites, and the nodes that it computes. `is_once`: it runs at load."""

    node: int
    nodes: tuple[int, ...]
    operator: int
    arguments: tuple[Any, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    is_once: bool


@dataclass(frozen=True, slots=True)
class BindingDetails:
    """A buffer of a launch. `kind` is slot, state, scratch or weight; `place` its index."""

    name: str
    access: str
    kind: str
    place: int
    bytes: int


@dataclass(frozen=True, slots=True)
class LaunchDetails:
    node: int
    nodes: tuple[int, ...]
    operator: str
    kernel: int
    groups: tuple[int, int, int]
    buffers: tuple[BindingDetails, ...]
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MemoryDetails:
    """Bytes of GPU memory: reserved for the lifetime of the program, and in use at each launch at the live
    shapes (`activations`, `scratch`)."""

    weights: int
    states: int
    activations_reserved: int
    scratch_reserved: int
    activations: tuple[int, ...]
    scratch: tuple[int, ...]
    peak_launch: int | None  # the first with the highest use
    peak_bytes: int  # including weights and states


@dataclass(frozen=True, slots=True)
class PlanDetails:
    """A plan at live shapes; if `problem` says why it failed, it has no launches."""

    title: str
    inputs: tuple[str, ...]
    shapes: Mapping[int, Shape]  # by id, only of tensors below their maximum
    launches: tuple[LaunchDetails, ...]
    memory: MemoryDetails | None
    notes: tuple[str, ...]
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class DelegateDetails:
    """A delegate: its graph if it could be read, calls and plans if it could be compiled."""

    name: str
    backend: str
    bytes: int
    problems: tuple[str, ...]
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    values: tuple[ValueDetails, ...] = ()
    constants: tuple[ConstantDetails, ...] = ()
    operators: tuple[OperatorDetails, ...] = ()
    nodes: tuple[NodeDetails, ...] = ()
    calls: tuple[CallDetails, ...] | None = None
    repetitions: tuple[tuple[tuple[int, int], ...], ...] = ()  # nodes [first, end) of equal blocks
    plans: tuple[PlanDetails, ...] = ()


@dataclass(frozen=True, slots=True)
class InstructionDetails:
    kind: str
    text: str
    delegate: int | None  # None: work of the host


@dataclass(frozen=True, slots=True)
class MethodDetails:
    """A method. Its outputs are types, or values if it only returns constants."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    instructions: tuple[InstructionDetails, ...]
    delegates: tuple[DelegateDetails, ...]


@dataclass(frozen=True, slots=True)
class KernelDetails:
    name: str
    workgroup: tuple[int, int, int]
    source: str | None  # None: the page would be too large


@dataclass(frozen=True, slots=True)
class ProgramDetails:
    name: str
    kind: str
    bytes: int
    adapter: str | None
    planned_for: str  # the device of the plans
    problems: tuple[str, ...]
    made_for: str | None
    host_reasons: tuple[str, ...]
    methods: tuple[MethodDetails, ...]
    kernels: tuple[KernelDetails, ...]
