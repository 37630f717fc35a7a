"""The operators that VulkanPartitioner accepts and that no file it writes can hold: why, and what they mean.

Comparisons and copies mean something in a graph all the same, and work. The others have nothing to compute
with: a graph that calls one is refused with the reason from the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pteron.families.layout.copy import copy_elements
from pteron.ops import AnyInt, Dispatch, Kind, Operand, define, same_shape

_COMPARISON = "a comparison only feeds assertions, which exporters drop"
_ASSERTION = "exporters drop assertions, since no kernel can stop a program"

REMOVED_BY_EXPORTER: Mapping[str, str] = {
    "getitem": "exporters name a member of a list by its own id",
    "lt": _COMPARISON,
    "gt": _COMPARISON,
    "ge": _COMPARISON,
    "le": _COMPARISON,
    "eq": _COMPARISON,
    "_assert_scalar.default": _ASSERTION,
    "sym_constrain_range_for_size.default": _ASSERTION,
    "aten.copy.default": "exporters let the source of a copy stand for it",
}


def explained(name: str) -> str:
    """An operator's name, with the reason why no file should hold it where there is one."""
    return (
        f"{name} (no file should hold it: {REMOVED_BY_EXPORTER[name]})"
        if name in REMOVED_BY_EXPORTER
        else name
    )


def comparison(name: str, compare: Callable[[AnyInt, AnyInt], bool]) -> None:
    """A live integer that is 1 where the comparison of two others holds, or else 0."""

    def decided(a: AnyInt, b: AnyInt) -> int:
        return int(compare(a, b))

    define(name, "a:int b:int -> out:symint", shape=None, compute=decided, kind=Kind.SCALAR)


comparison("lt", lambda a, b: a < b)
comparison("gt", lambda a, b: a > b)
comparison("ge", lambda a, b: a >= b)
comparison("le", lambda a, b: a <= b)
comparison("eq", lambda a, b: a == b)


def _copy(source: Operand, out: Operand) -> Iterator[Dispatch]:
    if source.buffer != out.buffer:
        yield copy_elements(source, out)


# What is copied over only lends its shape, which exporters hold to the source's.
define(
    "aten.copy.default",
    "self:ignored src non_blocking:ignored -> out",
    shape=same_shape,
    compute=_copy,
    kind=Kind.VIEW,
)
