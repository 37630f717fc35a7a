"""The interface of `executorch.runtime`, so that existing scripts change one import:

from pteron import Runtime

method = Runtime.get().load_program("model.pte").load_method("forward")
outputs = method.execute([x])
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from pteron.errors import InputError, MethodError
from pteron.format import BACKEND
from pteron.ops import OPERATORS
from pteron.runtime.method import Method
from pteron.runtime.program import Program, load
from pteron.runtime.specs import ValueSpec, describe

# ExecuTorch reports element types by these numbers.
_SCALAR_TYPES = {
    "u8": 0, "i8": 1, "i16": 2, "i32": 3, "i64": 4, "f16": 5, "f32": 6, "f64": 7, "bool": 11, "bf16": 15,
}  # fmt: skip


class Verification(Enum):
    """How closely ExecuTorch looks at a file. Pteron always checks all of it."""

    Minimal = 0
    InternalConsistency = 1


class Runtime:
    """The entry point; there is one."""

    _instance: Runtime | None = None

    @classmethod
    def get(cls) -> Runtime:
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    @property
    def backend_registry(self) -> BackendRegistry:
        return BackendRegistry()

    @property
    def operator_registry(self) -> OperatorRegistry:
        return OperatorRegistry()

    def load_program(
        self,
        data: bytes | bytearray | BinaryIO | Path | str,
        *,
        verification: Verification = Verification.InternalConsistency,
        enable_etdump: bool = False,
        debug_buffer_size: int = 0,
        data_path: Path | str | None = None,
    ) -> RuntimeProgram:
        """Load a program by path, bytes or open file; `data_path` is a .ptd file with its weights.

        Files are always verified, and no ETDump is written: the other options change nothing.
        """
        source = data if isinstance(data, (bytes, bytearray, str, Path)) else data.read()
        return RuntimeProgram(load(source, data=() if data_path is None else data_path))


class BackendRegistry:
    """The backends that programs may be delegated to."""

    @property
    def registered_backend_names(self) -> list[str]:
        return [BACKEND]

    def is_available(self, backend_name: str) -> bool:
        return backend_name == BACKEND


class OperatorRegistry:
    """The operators that delegates may use."""

    @property
    def operator_names(self) -> set[str]:
        return {name for name, operator in OPERATORS.items() if not operator.is_internal}


class RuntimeProgram:
    """A loaded program."""

    def __init__(self, program: Program) -> None:
        self._program = program

    @property
    def method_names(self) -> set[str]:
        return set(self._program.methods)

    def load_method(self, name: str) -> RuntimeMethod:
        """The method, on the device; a name the program does not have is a MethodError."""
        return RuntimeMethod(self._program[name])

    def metadata(self, method_name: str) -> MethodMeta:
        """What a method takes and gives, without loading it onto the device."""
        for record in self._program.file.methods:
            if record.name == method_name:
                return MethodMeta(method_name, *describe(record, [None] * len(record.delegates)))
        names = ", ".join(self._program.methods)
        raise MethodError(f"{self._program.file.name} has no method {method_name!r}; it has {names}")


class RuntimeMethod:
    """A loaded method."""

    def __init__(self, method: Method) -> None:
        self._method = method

    def execute(self, inputs: Sequence[Any]) -> Sequence[Any]:
        return list(self._method(*inputs))

    @property
    def metadata(self) -> MethodMeta:
        return MethodMeta(self._method.name, self._method.inputs, self._method.outputs)


class MethodMeta:
    """What a method takes and gives, in ExecuTorch's terms."""

    def __init__(self, name: str, inputs: Sequence[ValueSpec], outputs: Sequence[ValueSpec]) -> None:
        self._name = name
        self._inputs = inputs
        self._outputs = outputs

    def name(self) -> str:
        return self._name

    def num_inputs(self) -> int:
        return len(self._inputs)

    def num_outputs(self) -> int:
        return len(self._outputs)

    def input_tensor_meta(self, index: int) -> TensorInfo:
        return TensorInfo(_tensor_spec(self._inputs, index))

    def output_tensor_meta(self, index: int) -> TensorInfo:
        return TensorInfo(_tensor_spec(self._outputs, index))


class TensorInfo:
    """A tensor's type and maximum size."""

    def __init__(self, spec: ValueSpec) -> None:
        self._spec = spec

    def sizes(self) -> tuple[int, ...]:
        return self._spec.shape_max

    def dtype(self) -> int:
        return _SCALAR_TYPES[str(self._spec.dtype)]

    def nbytes(self) -> int:
        assert self._spec.dtype is not None
        return prod(self._spec.shape_max) * self._spec.dtype.itemsize


def _tensor_spec(specs: Sequence[ValueSpec], index: int) -> ValueSpec:
    if not 0 <= index < len(specs) or specs[index].kind != "tensor":
        raise InputError(f"value {index} of {len(specs)} is not a tensor")
    return specs[index]
