"""The interface of `executorch.runtime`, so that existing scripts change one import:

from pteron import Runtime

method = Runtime.get().load_program("model.pte").load_method("forward")
outputs = method.execute([x])
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO

from pteron.errors import MethodError
from pteron.format import BACKEND
from pteron.ops import OPERATORS
from pteron.runtime.method import Method
from pteron.runtime.mirror_meta import MethodMeta, TensorInfo
from pteron.runtime.program import Program, load

__all__ = [
    "BackendRegistry",
    "MethodMeta",
    "OperatorRegistry",
    "Runtime",
    "RuntimeMethod",
    "RuntimeProgram",
    "TensorInfo",
    "Verification",
]


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
        source = data if isinstance(data, (bytes, bytearray, str, Path)) else _contents(data)
        return RuntimeProgram(load(source, data=() if data_path is None else data_path))


def _contents(data: BinaryIO) -> bytes:
    if not hasattr(data, "read"):
        raise TypeError(f"a program is a path, bytes or an open file, not a {type(data).__name__}")
    return data.read()


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
                return MethodMeta(record)
        names = ", ".join(self._program.methods)
        raise MethodError(f"{self._program.file.name} has no method {method_name!r}; it has {names}")

    def write_etdump_result_to_file(self, etdump_path: str, debug_buffer_path: str) -> None:
        """There is none to write, as in a runtime without event tracing."""
        raise RuntimeError("no ETDump was recorded; `pteron profile` measures programs")


class RuntimeMethod:
    """A loaded method."""

    def __init__(self, method: Method) -> None:
        self._method = method

    def execute(self, inputs: Any) -> Sequence[Any]:
        """The outputs, in a list. A method of one input takes that alone, too."""
        is_many = isinstance(inputs, (list, tuple))
        return list(self._method(*inputs) if is_many else self._method(inputs))

    @property
    def metadata(self) -> MethodMeta:
        return MethodMeta(self._method.record)
