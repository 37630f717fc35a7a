"""An operator outside the delegates: its parameters, the function that runs it, and checks of arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pteron.dtypes import SCALAR_TYPES
from pteron.errors import HostError
from pteron.host.values import HostTensor, UnsetTensor

Arguments: TypeAlias = Sequence[Any]
Run: TypeAlias = Callable[[Arguments], Mapping[int, object]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of an operator, as in its schema."""

    name: str
    kind: str = "any"  # "Tensor", "Optional[List[int]]" and so on, in PyTorch's words
    is_written: bool = False
    is_read: bool = True  # what is written and read is updated in place


@dataclass(frozen=True, slots=True)
class HostOperator:
    """`run` takes the arguments in schema order and returns the values that it wrote, by argument position.

    It raises HostError for values that do not fit; any other exception means that the program is wrong.
    `run_dry` does the same for the shapes alone: it writes zeros. Without it, `run` is fast enough.
    """

    run: Run
    parameters: tuple[Parameter, ...]
    run_dry: Run | None = None


_SCALAR_KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "bool": (int,),
    "float": (int, float),
    "number": (int, float),
    "str": (str,),
}
MEMORY_FORMATS = range(4)  # contiguous, preserve, channels last, channels last in 3d


def require(condition: object, problem: str) -> None:
    """Raise a HostError unless the condition holds."""
    if not condition:
        raise HostError(problem)


def check_integer(value: object) -> None:
    """Raise an error for an integer beyond the 64 signed bits of the file format."""
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise HostError("an integer of more than 64 bits")


def check_kinds(arguments: Arguments, parameters: Sequence[Parameter]) -> None:
    """Raise an error for values that are not of their parameters' kinds."""
    for value, parameter in zip(arguments, parameters, strict=True):
        if not _is_kind(value, parameter.kind, parameter.is_read):
            if isinstance(value, UnsetTensor):
                raise TypeError(f"{parameter.name} is a tensor that nothing has written yet")
            found = f"{value!r:.40}" if isinstance(value, (int, float, str)) else value
            raise HostError(f"argument {parameter.name} takes {parameter.kind}, found {found}")


def _is_kind(value: object, kind: str, is_read: bool) -> bool:
    if kind.startswith("Optional["):
        return value is None or _is_kind(value, kind[len("Optional[") : -1], is_read)
    if kind.startswith("List["):
        member = kind[len("List[") : -1]
        return isinstance(value, tuple) and all(_is_kind(item, member, is_read) for item in value)
    if kind == "Tensor":
        return isinstance(value, HostTensor if is_read else (HostTensor, UnsetTensor))
    if kind == "ScalarType":
        return value in SCALAR_TYPES
    if kind == "MemoryFormat":
        return value in MEMORY_FORMATS
    check_integer(value)
    return isinstance(value, _SCALAR_KINDS[kind])
