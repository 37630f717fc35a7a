"""What an operator outside the delegates is: its parameters, what it will write, and what runs it."""

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
Run: TypeAlias = Callable[[Arguments], Mapping[int, object]]


@dataclass(frozen=True, slots=True)
class Cost:
    """What a call will do, known before memory is taken.

    `shapes` are those of the tensors it will write, by argument position, a list's in a list. `elements` are
    read and written, `products` multiplied and added; `scratch` are bytes that it needs meanwhile. A view
    will be over the memory of the first argument.
    """

    shapes: Mapping[int, Shape | list[Shape]] = field(default_factory=dict)
    elements: int = 1
    products: int = 0
    scratch: int = 0
    is_view: bool = False

    @property
    def work(self) -> int:
        """In products: of functions of an element, which may be costly, and of memory, it counts for more."""
        return max(_PRODUCTS_PER_ELEMENT * self.elements, self.products)


EstimateCost: TypeAlias = Callable[[Arguments], Cost]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of an operator, as its schema has it."""

    name: str
    kind: str = "any"  # "Tensor", "Optional[List[int]]" and so on, in PyTorch's words
    is_written: bool = False
    is_read: bool = True  # what is written and read is updated in place


@dataclass(frozen=True, slots=True)
class HostOperator:
    """`run` takes the arguments' values in schema order and gives what it wrote, by argument position.
    `estimate_cost` takes the same, and refuses what `run` must not be given.

    Both raise HostError for values they cannot work with; anything else they raise is the program's fault.
    """

    run: Run
    estimate_cost: EstimateCost
    parameters: tuple[Parameter, ...]


NUMBERS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "bool": (int,),
    "float": (int, float),
    "number": (int, float),
    "str": (str,),
}


def kind_error(value: object, parameter: Parameter) -> HostError:
    """The error for a value that is not what the operator's schema has there."""
    found = (
        "nothing" if value is None else f"{value!r:.40}" if isinstance(value, (int, float, str)) else value
    )
    return HostError(f"argument {parameter.name} takes {parameter.kind}, found {found}")


def check_kinds(arguments: Arguments, parameters: Sequence[Parameter]) -> None:
    """Refuse values that are not of their parameters' kinds."""
    for value, parameter in zip(arguments, parameters, strict=True):
        if not _is_kind(value, parameter.kind, parameter.is_read):
            if isinstance(value, UnsetTensor):
                raise TypeError(f"{parameter.name} is a tensor that nothing has written yet")
            raise kind_error(value, parameter)


def _is_kind(value: object, kind: str, is_read: bool) -> bool:
    if kind.startswith("Optional["):
        return value is None or _is_kind(value, kind[len("Optional[") : -1], is_read)
    if kind.startswith("List["):
        member = kind[len("List[") : -1]
        return isinstance(value, tuple) and all(_is_kind(item, member, is_read) for item in value)
    if kind == "Tensor":
        return isinstance(value, HostTensor if is_read else (HostTensor, UnsetTensor))
    if kind in ("ScalarType", "MemoryFormat"):
        return isinstance(value, int)
    check_integer(value)
    return isinstance(value, NUMBERS[kind])
