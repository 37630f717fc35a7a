"""Changes to JSON: values of other types and sizes, members moved, doubled, dropped, nested."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

from fuzz.mutation.havoc import EDGES, havoc
from fuzz.target import Mutate

Json: TypeAlias = Any
Path: TypeAlias = tuple[str | int, ...]
_TEXTS = (
    "",
    " ",
    "\0",
    "\ud800",
    "<s>",
    "a" * 300,
    "../x",
    "*",
    "é😀",
    "[",
    "(?:a+)+$",
    "\\p{L}",
    "{{",
    "%",
    "▁",
    "1e999",
)
_DEEP = 3000


def tree_mutation(extra: tuple[Json, ...] = ()) -> Mutate:
    """A mutation of JSON texts; `extra` are values that its readers know."""

    def mutate(data: bytes, random: Random, other: Callable[[], bytes]) -> bytes:
        try:
            tree = json.loads(data)
        except (ValueError, RecursionError):
            return havoc(data, random, other)
        if random.random() < 0.1:
            return havoc(data, random, other)
        return encoded(change(tree, random, lambda: _parsed(other()), extra))

    return mutate


def encoded(tree: Json) -> bytes:
    try:
        return json.dumps(tree, ensure_ascii=False).encode("utf-8", "surrogatepass")
    except RecursionError:
        return b"[" * _DEEP + b"]" * _DEEP


def change(tree: Json, random: Random, other: Callable[[], Json], extra: tuple[Json, ...] = ()) -> Json:
    """The tree with one place changed."""
    tree = json.loads(json.dumps(tree))
    path = random_path(tree, random)
    holder: Any = tree
    for step in path[:-1]:
        holder = holder[step]
    if not path:
        return any_value(random, extra)
    key: Any = path[-1]
    match random.randrange(8):
        case 0 | 1 | 2:
            holder[key] = near_value(holder[key], random, extra)
        case 3:
            holder[key] = any_value(random, extra)
        case 4:
            del holder[key]
        case 5 if isinstance(holder, list):
            holder[key:key] = [holder[key]] * random.choice((1, 2, 30))
        case 5:
            holder[random.choice(("", "extra", *map(str, holder)))] = holder[key]
        case 6:  # a value from elsewhere
            donor = random.choice((tree, other()))
            for step in random_path(donor, random):
                donor = donor[step]
            holder[key] = json.loads(json.dumps(donor))
        case 7:
            holder[key] = random.choice(([holder[key]], {"a": holder[key]}))
    return tree


def random_path(tree: Json, random: Random) -> Path:
    """A place in a tree, deep ones as likely as others."""
    path: list[str | int] = []
    while isinstance(tree, (dict, list)) and tree and random.random() < 0.85:
        step: Any = random.choice(list(tree)) if isinstance(tree, dict) else random.randrange(len(tree))
        path.append(step)
        tree = tree[step]
    return tuple(path)


def near_value(value: Json, random: Random, extra: tuple[Json, ...]) -> Json:
    """Another value of the same type."""
    match value:
        case bool():
            return not value
        case int():
            return random.choice(
                (value - 1, value + 1, -value, random.choice(EDGES), -random.choice(EDGES), 10**30)
            )
        case float():
            return random.choice((0.0, -value, 1e308, -1e308, 1e-320, value * 2, float("nan"), float("inf")))
        case str():
            return random.choice(
                (*_TEXTS, value * 2, value[: len(value) // 2], value.upper(), *filter(_is_text, extra))
            )
        case list():
            return random.choice(([], value * 2, value[::-1], value[:1], [value] * 2))
        case dict():
            return random.choice(({}, dict.fromkeys(value), dict.fromkeys(value, value)))
    return any_value(random, extra)


def any_value(random: Random, extra: tuple[Json, ...]) -> Json:
    plain: tuple[Json, ...] = (
        None,
        True,
        False,
        0,
        1,
        -1,
        2**31,
        2**64,
        10**40,
        0.5,
        -1e308,
        "",
        "a",
        [],
        {},
        [[]],
    )
    return random.choice((*plain, *extra, random.choice(_TEXTS), random.choice(EDGES)))


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


def _parsed(data: bytes) -> Json:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return {}
