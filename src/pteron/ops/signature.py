"""Signatures: an operator's arguments by name and kind, read from a line such as

    "self dim:ints? keepdim:bool dtype:ignored -> out"

A bare name is a tensor, `?` allows None, `!` marks a tensor that the operator changes in place, `!?` one
that may be None. An `ignored` argument may be anything and is not passed to the operator's functions. The
names are the schema's; the exporter stores every argument by position, defaults included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import cast

from pteron.graph import SymInt, Tensor, Value, ValueList
from pteron.ops.requirement import RequirementError


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: its name, its kind, whether it may be None."""

    name: str
    kind: str
    optional: bool
    mutated: bool

    def __str__(self) -> str:
        return f"{self.name}: {'optional ' if self.optional else ''}{_KINDS[self.kind][0]}"


@dataclass(frozen=True)
class Signature:
    arguments: tuple[Argument, ...]  # of a node
    outputs: tuple[Argument, ...]

    @cached_property
    def inputs(self) -> tuple[Argument, ...]:
        """The arguments that the operator's functions take."""
        return tuple(argument for argument in self.arguments if argument.kind != "ignored")


@cache
def parse(line: str) -> Signature:
    """The signature that a line describes."""
    inputs, outputs = line.split("->")
    return Signature(tuple(map(_argument, inputs.split())), tuple(map(_argument, outputs.split())))


def _argument(word: str) -> Argument:
    name, _, kind = word.partition(":")
    kind = kind.rstrip("?!") or "tensor"
    if kind not in _KINDS:
        raise ValueError(f"unknown kind {kind!r} in {word!r}")
    marks = word[len(word.rstrip("?!")) :]
    return Argument(name.rstrip("?!"), kind, optional="?" in marks, mutated="!" in marks)


def conform(argument: Argument, value: Value) -> Value:
    """The value in the argument's own kind, or a RequirementError.

    Exported graphs keep one value where 1 and 1.0 are equal, so an int may arrive as a float and the reverse.
    """
    if value is None and argument.optional:
        return None
    result = _KINDS[argument.kind][1](value)
    if result is None:
        raise RequirementError(f"argument {argument}, found {type(value).__name__}")
    return result


def _integer(value: Value) -> int | SymInt | None:
    if isinstance(value, (int, SymInt)):
        return value if isinstance(value, SymInt) else int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else None


def _number(value: Value) -> int | float | SymInt | None:
    if isinstance(value, bool):  # kernels would be written with `true`
        return int(value)
    return value if isinstance(value, (int, float, SymInt)) else None


def _integers(value: Value) -> Value:
    items = value.items if isinstance(value, ValueList) else value
    if not isinstance(items, tuple):
        return None
    whole = tuple(_integer(item) for item in items)
    if any(item is None for item in whole):
        return None
    return ValueList(value.id, whole) if isinstance(value, ValueList) else cast(Value, whole)


def _tensors(value: Value) -> Value:
    if not isinstance(value, ValueList):
        return None
    return value if all(item is None or isinstance(item, Tensor) for item in value.items) else None


def _floats(value: Value) -> Value:
    if isinstance(value, tuple) and all(isinstance(item, (int, float)) for item in value):
        return tuple(float(item) for item in value)
    return None


# Of each kind: what messages call it, and the function that takes a value to it (None: it does not fit).
_KINDS: dict[str, tuple[str, Callable[[Value], Value]]] = {
    "tensor": ("a tensor", lambda value: value if isinstance(value, Tensor) else None),
    "tensors": ("a list of tensors", _tensors),
    "int": ("an integer", _integer),
    "ints": ("a list of integers", _integers),
    "float": ("a number", lambda value: float(value) if isinstance(value, (int, float)) else None),
    "floats": ("a list of numbers", _floats),
    "number": ("a number", _number),
    "bool": (
        "a boolean",
        lambda value: bool(value) if isinstance(value, (int, float)) and value in (0, 1) else None,
    ),
    "str": ("a string", lambda value: value if isinstance(value, str) else None),
    "list": ("a list", lambda value: value if isinstance(value, ValueList) else None),
    "symint": ("a SymInt", lambda value: value if isinstance(value, SymInt) else None),
    "ignored": ("anything", lambda value: value),
}
