"""An operator outside the delegates: its parameters, and the function that prepares a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pteron.errors import HostError
from pteron.graph import Shape
from pteron.host.limits import check_integer
from pteron.host.values import HostTensor, UnsetTensor

Arguments: TypeAlias = Sequence[Any]
_PRODUCTS_PER_ELEMENT = 16


@dataclass(frozen=True, slots=True)
class HostCall:
    """A call with checked arguments, and what it will use, estimated before memory is taken.

    `run` returns the values that it wrote, by argument position. `shapes` are those of the tensors it writes,
    by argument position; a list has a list of them. `elements` are read and written, `products` multiplied
    and added; `scratch` is temporary memory in bytes. A view shares the memory of the first argument.
    """

    run: Callable[[], Mapping[int, object]]
    shapes: Mapping[int, Shape | list[Shape]] = field(default_factory=dict)
    elements: int = 1
    products: int = 0
    scratch: int = 0
    is_view: bool = False

    @property
    def work(self) -> int:
        """The work, counted in products. An element counts as several products: its function may be slow."""
        return max(_PRODUCTS_PER_ELEMENT * self.elements, self.products)


Prepare: TypeAlias = Callable[[Arguments], HostCall]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of an operator, as in its schema."""

    name: str
    kind: str = "any"  # "Tensor", "Optional[List[int]]" and so on, in PyTorch's words
    is_written: bool = False
    is_read: bool = True  # what is written and read is updated in place


@dataclass(frozen=True, slots=True)
class HostOperator:
    """`prepare` takes the arguments in schema order and rejects those that are unsafe to run.

    It and the call raise HostError for values that do not fit; any other exception means that the program is
    wrong.
    """

    prepare: Prepare
    parameters: tuple[Parameter, ...]


NUMBERS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "bool": (int,),
    "float": (int, float),
    "number": (int, float),
    "str": (str,),
}
SCALAR_TYPES = (0, 1, 2, 3, 4, 5, 6, 7, 11, 15)  # element types as programs number them
MEMORY_FORMATS = range(4)  # contiguous, preserve, channels last, channels last in 3d


def require(condition: object, problem: str) -> None:
    """Raise a HostError unless the condition holds."""
    if not condition:
        raise HostError(problem)


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
    return isinstance(value, NUMBERS[kind])
