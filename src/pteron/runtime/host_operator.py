"""What an operator outside the delegates is: its parameters, what it will write, and what runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pteron.graph import Shape

Arguments: TypeAlias = Sequence[Any]
_PRODUCTS_PER_ELEMENT = 16
Run: TypeAlias = Callable[[Arguments], Mapping[int, object]]


@dataclass(frozen=True, slots=True)
class Forecast:
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


Foresee: TypeAlias = Callable[[Arguments], Forecast]


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
    `foresee` takes the same, and refuses what `run` must not be given.

    Both raise HostError for values they cannot work with; anything else they raise is the program's fault.
    """

    run: Run
    foresee: Foresee
    parameters: tuple[Parameter, ...]
