"""Checks callers' arguments and converts them to plain Python values. A float is never taken for an
integer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from numbers import Real
from operator import index
from reprlib import repr as shortened

from pteron.errors import InputError

SEQUENCES_MAX = 16  # per model, by default
WAITING_MAX = 64  # requests in the queue of an engine, by default


def integer(name: str, value: object) -> int:
    """`value` as a Python int; it may be of another integer type, such as NumPy's."""
    if type(value) is int:
        return value
    if not isinstance(value, bool):  # a bool is an int in Python but a mistake here; `index` rejects NumPy's
        try:
            return index(value)  # type: ignore[arg-type]  # raises TypeError
        except TypeError:
            pass
    raise InputError(f"{name} must be an integer, not {shortened(value)}")


def integers(name: str, values: object) -> list[int]:
    unordered = (str, bytes, bytearray, Mapping, Set)
    try:
        listed = None if isinstance(values, unordered) else list(values)  # type: ignore[call-overload]
    except TypeError:  # not iterable
        listed = None
    if listed is None:
        raise InputError(f"{name} must be a sequence of integers, not {shortened(values)}")
    return [integer(f"each of {name}", value) for value in listed]


def number(name: str, value: object) -> float:
    """A real number, as a float."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise InputError(f"{name} must be a number, not {shortened(value)}")
    try:
        return float(value)
    except OverflowError:  # an integer larger than any float
        raise InputError(f"{name} must fit into a float, not {shortened(value)}") from None


def strings(name: str, values: object) -> list[str]:
    """A list of strings, from one string or several."""
    if isinstance(values, str):
        return [values]
    if isinstance(values, Iterable) and not isinstance(values, (bytes, bytearray, Mapping)):
        listed = list(values)
        if all(isinstance(value, str) for value in listed):
            return listed
    raise InputError(f"{name} must be a string or a sequence of strings, not {shortened(values)}")
