"""Operators that VulkanPartitioner accepts but removes before it writes a file: the reasons, and their
meaning.

Comparisons and copies still work if a graph calls them. The others cannot be computed: a graph that calls one
is an error with the reason from the table."""

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
    "aten.copy.default": "exporters replace a copy by its source",
}


def explained(name: str) -> str:
    """An operator's name, with the reason if no file should contain it."""
    return (
        f"{name} (no file should contain it: {REMOVED_BY_EXPORTER[name]})"
        if name in REMOVED_BY_EXPORTER
        else name
    )


def comparison(name: str, compare: Callable[[AnyInt, AnyInt], bool]) -> None:
    """A live integer that is 1 if the comparison of two others holds, otherwise 0."""

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


# `self` only has a shape, which equals the source's.
define(
    "aten.copy.default",
    "self:ignored src non_blocking:ignored -> out",
    shape=same_shape,
    compute=_copy,
    kind=Kind.VIEW,
)
