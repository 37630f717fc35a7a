"""What a live case is: arguments with live sizes, and the element types to run them in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from arguments import Argument, tensor

LIVE = {"S": (7, 3, 1, 5), "T": (13, 6, 5, 8), "N": (3, 1, 2, 1)}  # the maximum first
FLOATS = ("f16", "f32")


@dataclass(frozen=True)
class Case:
    """Arguments, further options of `check_op`, and element types where the fixture does not define them."""

    arguments: tuple[Argument, ...]
    options: dict[str, Any]
    dtypes: tuple[str, ...] | None
    more: tuple[str, ...]

    def again(self) -> dict[str, Any]:
        """The options of one run; an oracle that keeps caches starts anew."""
        oracle = self.options.get("oracle")
        fresh = {"oracle": oracle()} if isinstance(oracle, type) else {}
        return {"live": LIVE, **self.options, **fresh}


def case(
    *arguments: Argument, dtypes: tuple[str, ...] | None = None, more: tuple[str, ...] = (), **options: Any
) -> Case:
    return Case(arguments, options, dtypes, more)


def indices(size: int, *shape: int | str) -> Any:
    return tensor(*shape, dtype="i64", low=0, high=size - 1)
