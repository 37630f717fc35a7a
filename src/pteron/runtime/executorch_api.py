"""The API of `executorch.runtime`: Runtime, programs, methods and their metadata."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from pteron.dtypes import SCALAR_TYPES
from pteron.errors import InputError, MethodError
from pteron.format.delegate import BACKENDS
from pteron.format.records import EValue, MethodRecord, TensorRecord
from pteron.ops import OPERATORS
from pteron.runtime.etdump import etdump, node_ids
from pteron.runtime.method import Method
from pteron.runtime.program import Program, load
from pteron.runtime.trace import Trace

_SCALAR_NUMBERS = {dtype: number for number, dtype in SCALAR_TYPES.items()}
# In the order of SCALAR_TYPES.
_NAMES = ("Byte", "Char", "Short", "Int", "Long", "Half", "Float", "Double", "Bool", "BFloat16")
_SCALAR_NAMES = dict(zip(SCALAR_TYPES.values(), _NAMES, strict=True))


class NoTensorError(InputError, IndexError):
    """The value at this index is not a tensor."""


class TensorInfo:
    """A tensor's type and maximum size."""

    def __init__(self, record: TensorRecord) -> None:
        self._record = record

    def __repr__(self) -> str:
        kind = _SCALAR_NAMES[self._record.dtype]
        return (
            f"TensorInfo(sizes={list(self.sizes())}, dtype={kind}, "
            f"is_memory_planned={self.is_memory_planned()}, nbytes={self.nbytes()})"
        )

    def sizes(self) -> tuple[int, ...]:
        return self._record.sizes

    def dtype(self) -> int:
        return _SCALAR_NUMBERS[self._record.dtype]

    def is_memory_planned(self) -> bool:
        """Whether the exporter planned its memory. Pteron plans its own."""
        return self._record.allocation is not None

    def nbytes(self) -> int:
        return prod(self._record.sizes) * self._record.dtype.itemsize


class MethodMeta:
    """Inputs and outputs of a method, and its attributes: named buffers and weights."""

    def __init__(self, record: MethodRecord) -> None:
        self._record = record
        self._inputs = [record.values[id] for id in record.inputs]
        self._outputs = [record.values[id] for id in record.outputs]
        self._attributes = [
            value for value in record.values if isinstance(value, TensorRecord) and value.name is not None
        ]

    def __repr__(self) -> str:
        def shown(side: str, values: Sequence[EValue]) -> str:
            infos = [repr(TensorInfo(v)) if isinstance(v, TensorRecord) else "None" for v in values]
            return f"num_{side}s={len(values)}, {side}_tensor_meta={infos}"

        sides = f"{shown('input', self._inputs)}, {shown('output', self._outputs)}"
        return f"MethodMeta(name='{self.name()}', {sides})"

    def name(self) -> str:
        return self._record.name

    def num_inputs(self) -> int:
        return len(self._inputs)

    def num_outputs(self) -> int:
        return len(self._outputs)

    def num_attributes(self) -> int:
        return len(self._attributes)

    def input_tensor_meta(self, index: int) -> TensorInfo:
        return _info("input", self._inputs, index)

    def output_tensor_meta(self, index: int) -> TensorInfo:
        return _info("output", self._outputs, index)

    def attribute_tensor_meta(self, index: int) -> TensorInfo:
        return _info("attribute", self._attributes, index)


def _info(kind: str, values: Sequence[EValue], index: int) -> TensorInfo:
    value = values[index] if 0 <= index < len(values) else None
    if not isinstance(value, TensorRecord):
        raise NoTensorError(f"{kind} {index} of {len(values)} is not a tensor")
    return TensorInfo(value)


class Verification(Enum):
    """ExecuTorch's levels of file verification. Pteron always checks the whole file."""

    Minimal = 0
    InternalConsistency = 1


class Runtime:
    """The entry point, a singleton."""

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

        With `enable_etdump`, every launch is timed, and calls wait for the GPU. Files are always verified,
        and intermediate outputs are not recorded: the other options have no effect.
        """
        if not isinstance(data, (bytes, bytearray, str, Path)):
            if not hasattr(data, "read"):
                raise TypeError(f"a program is a path, bytes or an open file, not a {type(data).__name__}")
            data = data.read()
        trace = Trace() if enable_etdump else None
        given = () if data_path is None else data_path
        return RuntimeProgram(load(data, given, state="explicit", trace=trace), trace)


class BackendRegistry:
    """The backends that programs may be delegated to."""

    @property
    def registered_backend_names(self) -> list[str]:
        return list(BACKENDS)

    def is_available(self, backend_name: str) -> bool:
        return backend_name in BACKENDS


class OperatorRegistry:
    """The operators that delegates may use."""

    @property
    def operator_names(self) -> set[str]:
        return {name for name, operator in OPERATORS.items() if not operator.is_internal}


class RuntimeProgram:
    """A loaded program."""

    def __init__(self, program: Program, trace: Trace | None = None) -> None:
        self._program = program
        self._trace = trace

    @property
    def method_names(self) -> set[str]:
        return set(self._program.methods)

    def load_method(self, name: str) -> RuntimeMethod:
        """The method, loaded onto the device; an unknown name is a MethodError."""
        return RuntimeMethod(self._program[name])

    def metadata(self, method_name: str) -> MethodMeta:
        """Inputs and outputs of a method, without loading it onto the device."""
        for record in self._program.file.methods:
            if record.name == method_name:
                return MethodMeta(record)
        names = ", ".join(self._program.methods)
        raise MethodError(f"{self._program.file.name} has no method {method_name!r}; it has {names}")

    def write_etdump_result_to_file(self, etdump_path: str, debug_buffer_path: str) -> None:
        """Write the times of all calls so far, for ExecuTorch's Inspector. The debug buffer is empty. Raises
        RuntimeError if the program was loaded without `enable_etdump`, as a runtime without event tracing
        does."""
        if self._trace is None:
            raise RuntimeError("no ETDump was recorded: load the program with enable_etdump=True")
        Path(etdump_path).write_bytes(etdump(self._trace, node_ids(self._program.file)))
        Path(debug_buffer_path).write_bytes(b"")


class RuntimeMethod:
    """A loaded method."""

    def __init__(self, method: Method) -> None:
        self._method = method

    def execute(self, inputs: Any) -> Sequence[Any]:
        """The outputs as a list. A single input may be given without a list."""
        is_many = isinstance(inputs, (list, tuple))
        return list(self._method(*inputs) if is_many else self._method(inputs))

    @property
    def metadata(self) -> MethodMeta:
        return MethodMeta(self._method.record)
