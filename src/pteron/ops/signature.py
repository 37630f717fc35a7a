"""Signatures: an operator's arguments by name and kind, read from a line such as

    "self dim:ints? keepdim:bool dtype:ignored -> out"

A bare name is a tensor, `?` allows None, `!` marks a tensor that the operator changes in place; what is
`ignored` may be anything, and the operator's functions do not see it. The names are the schema's; the
exporter stores every argument by position, defaults included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import cast

from pteron.graph import SymInt, Tensor, Value, ValueList


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: its name, its kind, whether it may be None."""

    name: str
    kind: str
    optional: bool
    mutated: bool

    def __str__(self) -> str:
        return f"{self.name}: {'optional ' if self.optional else ''}{_WORDS[self.kind]}"


@dataclass(frozen=True)
class Signature:
    arguments: tuple[Argument, ...]  # of a node
    outputs: tuple[Argument, ...]

    @cached_property
    def inputs(self) -> tuple[Argument, ...]:
        """The arguments that the operator's functions take."""
        return tuple(argument for argument in self.arguments if argument.kind != "ignored")


class KindError(Exception):
    """A value is not of the kind that an argument takes."""


@cache
def parse(line: str) -> Signature:
    """The signature that a line spells."""
    inputs, outputs = line.split("->")
    return Signature(tuple(map(_argument, inputs.split())), tuple(map(_argument, outputs.split())))


def _argument(word: str) -> Argument:
    name, _, kind = word.partition(":")
    optional = word.endswith("?")
    mutated = word.endswith("!")
    kind = kind.rstrip("?!") or "tensor"
    if kind not in _WORDS:
        raise ValueError(f"unknown kind {kind!r} in {word!r}")
    return Argument(name.rstrip("?!"), kind, optional, mutated)


def conform(argument: Argument, value: Value) -> Value:
    """The value in the argument's own kind, or KindError.

    Exported graphs keep one value where 1 and 1.0 are equal, so an int may arrive as a float and the reverse.
    """
    if value is None and argument.optional:
        return None
    result = _CONFORM[argument.kind](value)
    if result is None:
        raise KindError(f"argument {argument}, found {type(value).__name__}")
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


_WORDS = {
    "tensor": "a tensor",
    "tensors": "a list of tensors",
    "int": "an integer",
    "ints": "a list of integers",
    "float": "a number",
    "floats": "a list of numbers",
    "number": "a number",
    "bool": "a boolean",
    "str": "a string",
    "symint": "a SymInt",
    "ignored": "anything",
}
_CONFORM: dict[str, Callable[[Value], Value]] = {
    "tensor": lambda value: value if isinstance(value, Tensor) else None,
    "tensors": _tensors,
    "int": _integer,
    "ints": _integers,
    "float": lambda value: float(value) if isinstance(value, (int, float)) else None,
    "floats": _floats,
    "number": _number,
    "bool": lambda value: bool(value) if isinstance(value, (bool, int, float)) and value in (0, 1) else None,
    "str": lambda value: value if isinstance(value, str) else None,
    "symint": lambda value: value if isinstance(value, SymInt) else None,
}
