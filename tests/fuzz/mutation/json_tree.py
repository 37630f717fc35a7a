"""Changes to JSON: values of other types and sizes, members doubled, dropped, nested."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

from fuzz.mutation.havoc import EDGES, havoc
from fuzz.target import Mutate

_VALUES: tuple[object, ...] = (
    None, True, False, 0, 1, -1, 2**64, 10**40, 0.5, -1e308, float("nan"), [], {}, [[]],
    "", "a", "\0", "\ud800", "a" * 300, "../x", "é😀", "(?:a+)+$", "{{", "%", "▁", "1e999", *EDGES,
)  # fmt: skip


def tree_mutation(*known: object) -> Mutate:
    """A mutation of JSON texts; `known` are values that its readers know."""

    def mutate(data: bytes, random: Random, other: Callable[[], bytes]) -> bytes:
        try:
            tree = {"": json.loads(data)}
        except (ValueError, RecursionError):
            return havoc(data, random, other)
        if random.random() < 0.1:
            return havoc(data, random, other)
        _change(tree, random, known)
        return json.dumps(tree.get(""), ensure_ascii=False).encode("utf-8", "surrogatepass")

    return mutate


def header_mutation(*known: object) -> Mutate:
    """A mutation of JSON that follows its own length, the first eight bytes, and of any other bytes."""
    change = tree_mutation(*known)

    def mutate(data: bytes, random: Random, other: Callable[[], bytes]) -> bytes:
        end = 8 + int.from_bytes(data[:8], "little")
        if end > len(data) or random.random() < 0.2:
            return havoc(data, random, other)
        text = change(data[8:end], random, lambda: data[8:end])
        return len(text).to_bytes(8, "little") + text + data[end:]

    return mutate


def _change(holder: Any, random: Random, known: tuple[object, ...]) -> None:
    """Change one place below a holder's only member; deep ones are as likely as others."""
    key: Any = ""
    while isinstance(holder[key], (dict, list)) and holder[key] and random.random() < 0.85:
        holder = holder[key]
        key = random.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    value = holder[key]
    match random.randrange(6):
        case 0:
            del holder[key]
        case 1:
            holder[key] = random.choice(([value], {"a": value}, [value] * 30))
        case 2 | 3:
            holder[key] = random.choice((*_VALUES, *known))
        case _:
            holder[key] = _near(value, random)


def _near(value: Any, random: Random) -> object:
    match value:
        case bool():
            return not value
        case int() | float():
            return random.choice((value - 1, value + 1, -value, value * 2))
        case str() | list():
            return random.choice((value * 2, value[: len(value) // 2], value[::-1]))
        case dict():
            return dict.fromkeys(value)
    return random.choice(_VALUES)
