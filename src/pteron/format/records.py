"""The content of a `.pte` program, as plain records.

Indices are checked when the records are made: every index into `values`, `operators` or
`delegates` is in range, and every view has exactly the bytes its tensor needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from pteron.dtypes import DType


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """A tensor of a method: its layout, and where its bytes come from.

    `sizes` are upper bounds where `dynamism` is "bound". `dim_order` lists the dimensions
    from the outermost in memory to the innermost.
    """

    dtype: DType
    sizes: tuple[int, ...]
    dim_order: tuple[int, ...]
    dynamism: Literal["static", "bound", "unbound"]
    data: memoryview | None
    """A constant's bytes, or the initial value of a mutable tensor."""
    is_constant: bool
    is_mutable: bool
    """Has an initial value, and memory in the arena where it changes."""
    name: str | None
    is_external: bool
    """Its bytes are in a `.ptd` file, under `name`."""
    allocation: tuple[int, int] | None = None
    """Its arena and the byte offset there, if the exporter planned its memory. A tensor that no instruction
    writes is a view of the tensor written at the same place."""


@dataclass(frozen=True, slots=True)
class IndexList:
    """A list whose items are other values of the method; -1 is None, in optional_tensor lists only."""

    kind: Literal["int", "tensor", "optional_tensor"]
    items: tuple[int, ...]


Scalar: TypeAlias = int | bool | float | str
EValue: TypeAlias = Scalar | TensorRecord | IndexList | tuple[float, ...] | tuple[bool, ...] | None


@dataclass(frozen=True, slots=True)
class KernelCall:
    """Run an operator on the host; out tensors are among the arguments."""

    operator: int
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DelegateCall:
    """Run a delegate; the arguments are its inputs, then its outputs."""

    delegate: int
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MoveCall:
    """Assign the value `source` to `target`."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class JumpFalseCall:
    """Continue at instruction `destination` (one past the last: stop) if `condition` is false."""

    condition: int
    destination: int


@dataclass(frozen=True, slots=True)
class FreeCall:
    """Free a tensor's memory."""

    value: int


Instruction: TypeAlias = KernelCall | DelegateCall | MoveCall | JumpFalseCall | FreeCall


@dataclass(frozen=True, slots=True)
class DelegateRecord:
    """A part of a method compiled for a backend."""

    backend: str
    blob: memoryview


@dataclass(frozen=True, slots=True)
class PortRecord:
    """What `pteron.compile` stores of an input or output of a method."""

    name: str
    shape_min: tuple[int, ...] | None = None
    """The least size of each dim of a tensor. None: all dims are static."""
    shape_step: tuple[int, ...] = ()
    """In which steps each dim goes up to its maximum. Empty: in steps of 1."""
    symbols: tuple[str, ...] = ()
    """For each dim, "" or a symbol. Dims of one symbol are as many steps below their maximum."""


@dataclass(frozen=True, slots=True)
class MethodRecord:
    """One entry point: its values and the instructions that compute them."""

    name: str
    values: tuple[EValue, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    instructions: tuple[Instruction, ...]
    operators: tuple[str, ...]
    """As "aten::add.out"; without the dot where an operator has no overload name."""
    delegates: tuple[DelegateRecord, ...]
    input_tree: str = ""
    """The inputs as a pytree of arguments, in PyTorch's JSON; empty if the exporter stored none."""
    output_tree: str = ""
    """The outputs as a pytree."""
    input_ports: tuple[PortRecord, ...] = ()
    output_ports: tuple[PortRecord, ...] = ()
    """One for each input and output; both are empty if the exporter stored none."""
    carried: tuple[tuple[int, int], ...] = ()
    """Mutable tensors and their new values: those after the last instruction are the next call's."""


@dataclass(frozen=True, slots=True)
class HostCall:
    """Uses of an operator that a partitioner left on the host, and why."""

    operator: str
    count: int
    reason: str

    def __str__(self) -> str:
        return f"{self.count} {self.operator}: {self.reason}"


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """A whole `.pte` file; all data are views into it."""

    name: str
    version: int
    methods: tuple[MethodRecord, ...]
    named_data: Mapping[str, memoryview]
    size: int
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What `pteron.compile` adds to a program; empty in others."""

    @property
    def host_calls(self) -> tuple[HostCall, ...]:
        """Why operators run on the host, if `pteron.compile` made the program."""
        return tuple(HostCall(**call) for call in self.metadata.get("host", ()))


@dataclass(frozen=True, slots=True)
class VkTensor:
    """A tensor of the graph; `dims` are upper bounds where shapes are dynamic."""

    dtype: DType
    dims: tuple[int, ...]
    constant_id: int | None
    memory_id: int | None
    """Tensors with the same id never live at the same time and may share memory."""


@dataclass(frozen=True, slots=True)
class VkValueList:
    """A list of other values of the graph, by id."""

    items: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VkSymInt:
    """An integer known only when the graph runs; `value` is its upper bound or a guess."""

    value: int


ScalarList: TypeAlias = tuple[int, ...] | tuple[float, ...] | tuple[bool, ...]
VkValue: TypeAlias = Scalar | ScalarList | VkTensor | VkValueList | VkSymInt | None


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One operator call: the last argument is the output, all the others are inputs."""

    name: str
    args: tuple[int, ...]
    id: int = 0  # that the exporter gave it, to find its debug handles


@dataclass(frozen=True, slots=True)
class ConstantRecord:
    """A constant's bytes; None where nothing is stored under its key."""

    key: str | None
    length: int
    data: memoryview | None


@dataclass(frozen=True, slots=True)
class DelegateGraph:
    """Operator calls in order, the values they use, and the constants behind some of the values."""

    name: str
    nodes: tuple[NodeRecord, ...]
    values: tuple[VkValue, ...]
    input_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    constants: tuple[ConstantRecord, ...]
