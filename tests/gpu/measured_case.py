"""What a measured case is: an operator at work, and the kernels that it must launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from arguments import Argument
from check import check_op

from pteron.ops import Target

LIVE = {"S": (7, 1, 5)}
LONG = 1009  # elements of a row that has more of them than lanes
DEEP = 20_011  # more than one invocation walks
EITHER = ("software", "hardware")


@dataclass(frozen=True)
class Case:
    """An operator at work, and the kernels that must be among its launches on each kind of device."""

    name: str
    arguments: tuple[Argument, ...]
    kernels: str
    kinds: tuple[str, ...]
    options: dict[str, Any]

    def check(self, target: Target) -> None:
        options = {"tolerance": 1e-4, **self.options}
        if isinstance(options.get("oracle"), type):  # one that keeps caches
            options["oracle"] = options["oracle"]()
        check_op(self.name, *self.arguments, target=target, **options)


def case(name: str, *arguments: Argument, kernels: str, on: tuple[str, ...] = EITHER, **options: Any) -> Case:
    return Case(name, arguments, kernels, on, {"live": LIVE, **options})
