"""What a program calls its inputs: a method's record enters; a name for each of its inputs leaves.

An exporter keeps how the arguments were nested before they were one list: names of keyword arguments, and
keys of dicts. An input without such a name goes by its position, as `input_0`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pteron.errors import InputError
from pteron.format import MethodRecord

_DEPTH_MAX = 16  # of containers in containers
_TEXT_MAX = 1 << 20
_MISSING = object()


def input_names(record: MethodRecord) -> tuple[str, ...]:
    """The names in the order of the inputs, all different; positions where the file says nothing of use."""
    plain = [f"input_{position}" for position in range(len(record.inputs))]
    try:
        found = list(_leaves(_tree(record.input_tree)))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return tuple(plain)
    if len(found) != len(plain):
        return tuple(plain)
    times = Counter(found)
    taken = set(plain)
    return tuple(
        name if name and times[name] == 1 and name not in taken else position
        for name, position in zip(found, plain, strict=True)
    )


def _tree(text: str) -> Any:
    """The arguments, by position and by name."""
    if len(text) > _TEXT_MAX:
        raise ValueError("a text too long for names")
    _, tree = json.loads(text)
    return tree


def _leaves(tree: Any) -> Iterator[str]:
    """The name of each leaf: keys from the outermost on, joined by dots; none for one given by position."""
    by_position, by_name = tree["children_spec"]
    for argument in by_position["children_spec"]:
        yield from (".".join(path) for path in _paths(argument, _DEPTH_MAX))
    yield from (".".join(path) for path in _paths(by_name, _DEPTH_MAX))


def _paths(node: Any, depth: int) -> Iterator[list[str]]:
    if depth == 0:
        raise ValueError("containers nested too deeply for names")
    if node["type"] is None:
        yield []
        return
    children = node["children_spec"]
    context = json.loads(node["context"]) if node["type"].endswith("dict") else None
    keys = context if isinstance(context, list) else range(len(children))
    for key, child in zip(keys, children, strict=True):
        yield from ([str(key), *path] for path in _paths(child, depth - 1))


def arranged(
    where: str, names: Sequence[str], inputs: Sequence[object], named: Mapping[str, object]
) -> list[object]:
    """Inputs in their order: those given by position come first, others by name."""
    if len(inputs) > len(names):
        raise InputError(f"{where} takes {len(names)} inputs ({', '.join(names)}), got {len(inputs)}")
    found = [*inputs, *[_MISSING] * (len(names) - len(inputs))]
    places = {f"input_{position}": position for position in range(len(names))}
    places |= {name: position for position, name in enumerate(names)}
    for name, value in named.items():
        if name not in places:
            raise InputError(f"{where} has no input {name!r}; it has {', '.join(names) or 'none'}")
        if found[places[name]] is not _MISSING:
            raise InputError(f"{where}: input {name!r} is given twice")
        found[places[name]] = value
    missing = [name for name, value in zip(names, found, strict=True) if value is _MISSING]
    if missing:
        lacking = f"got {len(names) - len(missing)}: {', '.join(missing)} missing"
        raise InputError(f"{where} takes {len(names)} inputs ({', '.join(names)}), {lacking}")
    return found
