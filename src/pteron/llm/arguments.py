"""What callers give, as plain Python values: whole numbers are never made of anything else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from numbers import Real
from operator import index
from pathlib import Path
from reprlib import repr as shortened

from pteron.errors import InputError

SEQUENCES_MAX = 16  # of a model, by default
WAITING_MAX = 64  # queued requests of an engine, by default
_BOOLS = ("bool", "bool_")  # of Python and of NumPy: integers to Python, a mistake here


def integer(name: str, value: object) -> int:
    """A whole number, of Python's type or another's."""
    if type(value) is int:
        return value
    if type(value).__name__ not in _BOOLS:
        try:
            return index(value)  # type: ignore[arg-type]  # what has no such meaning raises
        except TypeError:
            pass
    raise InputError(f"{name} must be an integer, not {shortened(value)}")


def integers(name: str, values: object) -> list[int]:
    """A row of whole numbers, as a list."""
    unordered = (str, bytes, bytearray, Mapping, Set)
    try:
        listed = None if isinstance(values, unordered) else list(values)  # type: ignore[call-overload]
    except TypeError:  # nothing to go through
        listed = None
    if listed is None:
        raise InputError(f"{name} must be a sequence of integers, not {shortened(values)}")
    return [integer(f"each of {name}", value) for value in listed]


def path_of(given: object) -> Path:
    """A path, wherever it leads."""
    try:
        return Path(given)  # type: ignore[arg-type]  # what is no path raises
    except TypeError:
        raise InputError(f"a path must be a string or an os.PathLike, not {shortened(given)}") from None


def existing(given: object) -> Path:
    """A path that leads somewhere."""
    path = path_of(given)
    try:
        if path.exists():
            return path
    except OSError as error:
        raise InputError(f"{shortened(str(path))} cannot be looked at: {error.strerror}") from error
    raise InputError(f"{path} does not exist")


def number(name: str, value: object) -> float:
    """A real number, as a float."""
    if not isinstance(value, Real) or type(value).__name__ in _BOOLS:
        raise InputError(f"{name} must be a number, not {shortened(value)}")
    try:
        return float(value)
    except OverflowError:  # an integer beyond all floats
        raise InputError(f"{name} must be a number that a float holds, not {shortened(value)}") from None


def strings(name: str, values: object) -> list[str]:
    """A string, or several, as a list."""
    if isinstance(values, str):
        return [values]
    if isinstance(values, Iterable) and not isinstance(values, (bytes, bytearray, Mapping)):
        listed = list(values)
        if all(isinstance(value, str) for value in listed):
            return listed
    raise InputError(f"{name} must be a string or a sequence of strings, not {shortened(values)}")
