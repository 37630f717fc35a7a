"""What one rendering may cost: steps, seconds, and the size of what it makes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from string import Formatter
from typing import Any

from jinja2.utils import Namespace

STEPS_MAX = 1_000_000  # rounds of loops, calls, filters and operators
SECONDS_MAX = 5.0
SIZE_MAX = 1 << 24  # characters of one value
MADE_MAX = 1 << 26  # characters and items of all values that are made
_ITEM = 32  # characters that an item of a list counts for: about the bytes that it takes
_BITS_MAX = 1024  # of an integer
_DATE_MAX = 256  # characters of a date's pattern
# Widths of four digits and more, and those that arguments give: `%1000d`, `%*d`. Names with parentheses in
# them, as in `%((a))1000d`, are not read any further.
_WIDE_PERCENT = re.compile(r"%(?:\([^()]*\))?[-+ #.\d]*(?:\d{4}|\*)|%\([^()]*\(")
_WIDE_DATE = re.compile(r"%[^A-Za-z%]*\d{3}")
_WIDE_BRACES = re.compile(r"\d{4}|\{")  # in what stands behind the colon: `{:1000}`, `{:{}}`
LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # all that `str.splitlines` parts a text at


class BudgetError(Exception):
    """A template takes more than it may."""


class Budget:
    """What is left to one rendering."""

    def __init__(self) -> None:
        self._steps = STEPS_MAX
        self._made = MADE_MAX
        self._end = time.monotonic() + SECONDS_MAX

    def step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise BudgetError(f"it takes more than {STEPS_MAX:,} steps")
        if time.monotonic() > self._end:
            raise BudgetError(f"it takes longer than {SECONDS_MAX:g} seconds")

    def made(self, value: Any) -> Any:
        """A new value, within its bounds."""
        if not isinstance(value, Namespace):
            weigh(value)
        if isinstance(value, (str, list, tuple, dict)):
            self._made -= len(value) * (1 if isinstance(value, str) else _ITEM)
        if self._made < 0:
            raise BudgetError(f"it makes more than {MADE_MAX:,} characters")
        return value

    def each(self, items: Iterable[Any]) -> Iterator[Any]:
        """The items, a step each."""
        for item in items:
            self.step()
            yield item


current: ContextVar[Budget] = ContextVar("budget")


def weigh(*values: Any) -> int:
    """The characters in values, those in lists and dicts included: a list may hold one list twice.

    Namespaces may as well, and are refused: only what is in them is a value.
    """
    weight, left = 0, list(values)
    while left:
        value = left.pop()
        weight += _ITEM
        if isinstance(value, str):
            weight += len(value)
        elif isinstance(value, int):
            check_bits(value.bit_length())
        elif isinstance(value, Mapping):
            left += [*value.keys(), *value.values()]
        elif isinstance(value, (list, tuple, set, frozenset)):
            left += value
        elif isinstance(value, Namespace):
            raise BudgetError("it takes a namespace for a value")
        check_size(weight + _ITEM * len(left))
    return weight


def check_size(size: int) -> None:
    if size > SIZE_MAX:
        raise BudgetError(f"it makes a value of more than {SIZE_MAX:,} characters")


def check_bits(bits: int) -> None:
    if bits > _BITS_MAX:
        raise BudgetError(f"it makes an integer of more than {_BITS_MAX:,} bits")


def check_product(left: Any, right: Any) -> None:
    """Before `left * right`."""
    if isinstance(left, int) and isinstance(right, int):
        check_bits(left.bit_length() + right.bit_length())
    for value, times in ((left, right), (right, left)):
        if isinstance(value, (str, list, tuple)) and isinstance(times, int):
            check_size(weigh(value) * max(0, times))


def check_power(left: Any, right: Any) -> None:
    """Before `left ** right`."""
    if isinstance(left, int) and isinstance(right, int):
        check_bits(left.bit_length() * abs(right))


def check_percent(pattern: str, arguments: Any) -> None:
    """Before `pattern % arguments`: a width may be anything."""
    if _WIDE_PERCENT.search(pattern):
        raise BudgetError("it formats a text with a width of more than three digits")
    _check_places(pattern, pattern.count("%"), arguments)


def check_braces(pattern: str, *arguments: Any) -> None:
    """Before `pattern.format(...)`; its fields are those that Python's own parser finds."""
    fields = [field for field in Formatter().parse(pattern) if field[1] is not None]
    if any(_WIDE_BRACES.search(specification or "") for _, _, specification, _ in fields):
        raise BudgetError("it formats a text with a width of more than three digits")
    _check_places(pattern, len(fields), *arguments)


def _check_places(pattern: str, places: int, *arguments: Any) -> None:
    """Any place may be given the longest argument."""
    weigh(pattern)
    check_size(len(pattern) + places * weigh(*arguments))


def check_date(pattern: str) -> None:
    """Before a date is written: some systems take widths."""
    if _WIDE_DATE.search(pattern) or len(pattern) > _DATE_MAX:
        raise BudgetError("it writes a date with a width, or a long one")


def check_replace(text: str, old: str, new: str) -> None:
    check_size(len(text) + text.count(old) * len(new))


def check_indent(text: str, width: int) -> None:
    check_size(len(text) + (1 + sum(map(text.count, LINE_ENDS))) * width)


def check_join(separator: str, parts: list[Any]) -> None:
    check_size(weigh(parts) + len(separator) * len(parts))
