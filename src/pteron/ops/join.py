"""Joins: two consecutive launches become one, found by a function of both.

    @join("merge_norm")
    def merge_norm(first: Dispatch, second: Dispatch, is_read: IsRead) -> Dispatch | None:
        if first.kernel.name == ... and same_memory(first.bindings["out"], second.bindings["x"]):
            return Dispatch(...)

A join returns one launch for two, of one operator or of neighbours. It need not write what no other launch
reads. `plan/collect.py` applies it only if it writes to no buffer that it binds twice, and the device allows
its number of buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pteron.ops.dispatch import Bound, Dispatch, elements
from pteron.ops.operand import BufferRef, Operand, Scratch, Window

IsRead: TypeAlias = Callable[[Bound], bool]  # whether a launch after the second one reads it
Join: TypeAlias = Callable[[Dispatch, Dispatch, IsRead], Dispatch | None]
JOINS: dict[str, Join] = {}


def join(name: str) -> Callable[[Join], Join]:
    """Register a join under the name by which it is switched off, as rewrites are."""

    def register(find: Join) -> Join:
        if name in JOINS:
            raise ValueError(f"join {name} is defined twice")
        JOINS[name] = find
        return find

    return register


def memory_of(bound: Bound) -> BufferRef | Scratch:
    """The buffer of a binding; two scratch buffers are never equal."""
    bound = bound.of if isinstance(bound, Window) else bound
    return bound.buffer if isinstance(bound, Operand) else bound


def same_memory(a: Bound, b: Bound) -> bool:
    """Whether two launches bind the same elements, whatever shape they see them in."""
    return memory_of(a) == memory_of(b) and elements(a) == elements(b) and a.storage is b.storage
