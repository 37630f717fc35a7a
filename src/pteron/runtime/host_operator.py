"""What an operator outside the delegates is: its parameters, and the function that runs it on the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Arguments: TypeAlias = Sequence[Any]
Run: TypeAlias = Callable[[Arguments], Mapping[int, object]]


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

    It raises HostError for values it cannot work with; anything else it raises is the program's fault.
    """

    run: Run
    parameters: tuple[Parameter, ...]
