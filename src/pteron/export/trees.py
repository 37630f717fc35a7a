"""Structures of inputs and outputs: PyTorch's TreeSpecs as JSON, the names of their leaves, and words for how
two of them differ.

As JSON, a leaf is null and any other node is an object: the class, what PyTorch's pytrees need to make an
instance ("context"), a key for each child, and the children.
"""

from __future__ import annotations

import json
import sys
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

from pteron.errors import InputError

if TYPE_CHECKING:
    from torch.utils._pytree import TreeSpec

_CONTAINERS = {"tuple": tuple, "list": list, "dict": dict, "collections.OrderedDict": OrderedDict}


def register_dataclasses(value: object) -> None:
    """Let PyTorch's pytrees enter the dataclasses in a value, as `torch.export.register_dataclass` does."""
    from torch.export import register_dataclass
    from torch.utils._pytree import tree_leaves

    for leaf in tree_leaves(value):
        if is_dataclass(leaf) and not isinstance(leaf, type):
            if not _is_registered(type(leaf)):  # an earlier leaf may be of the same class
                register_dataclass(type(leaf))
            register_dataclasses(leaf)


def _is_registered(cls: type) -> bool:
    from torch.utils._pytree import SUPPORTED_NODES

    return cls in SUPPORTED_NODES


# Names ------------------------------------------------------------------------------------------


def leaf_names(spec: TreeSpec, prefix: str) -> list[str]:
    """A name for each leaf: its keys, joined. The prefix is for leaves whose first key is a position, and is
    the name of a leaf without keys."""
    return ["_".join(path if path and not path[0].isdigit() else [prefix, *path]) for path in _paths(spec)]


def _paths(spec: TreeSpec) -> Iterator[list[str]]:
    if spec.is_leaf():
        yield []
        return
    for key, child in zip(_keys(spec), spec.children(), strict=True):
        yield from ([str(key), *path] for path in _paths(child))


def _keys(spec: TreeSpec) -> list[str | int]:
    """The key of each child: a field, a key of a dict, or a position."""
    context = spec.context if isinstance(spec.context, (list, tuple)) else ()
    for names in (getattr(_class(spec), "__match_args__", ()), context, *context):
        if _are_keys(names) and len(names) == spec.num_children:
            return list(names)
    return list(range(spec.num_children))


def _are_keys(names: Any) -> bool:
    return isinstance(names, (list, tuple)) and all(isinstance(name, (str, int)) for name in names)


def _class(spec: TreeSpec) -> Any:
    return spec.context if spec.type is namedtuple else spec.type


# Differences ------------------------------------------------------------------------------------


def difference(expected: TreeSpec, found: TreeSpec, where: str) -> str | None:
    """How two structures differ, at the first place where they do; None if they are equal."""
    if _described(expected) != _described(found):
        return f"{where}: expected {_described(expected)}, got {_described(found)}"
    children = zip(_keys(expected), expected.children(), found.children(), strict=True)
    is_class = _class(expected) not in {None, *_CONTAINERS.values()}
    for key, one, other in children:
        place = f"{where}.{key}" if is_class and isinstance(key, str) else f"{where}[{key!r}]"
        if (problem := difference(one, other, place)) is not None:
            return problem
    return None if expected == found else f"{where}: another {_class(expected).__name__}"


def _described(spec: TreeSpec) -> str:
    """A structure without what its children contain."""
    if spec.is_leaf():
        return "a tensor or number"
    cls, keys = _class(spec), _keys(spec)
    if keys and isinstance(keys[0], str):
        return f"{cls.__name__} with {', '.join(map(str, keys))}"
    return f"{cls.__name__} of {len(keys)}"


# JSON -------------------------------------------------------------------------------------------


def to_json(spec: TreeSpec) -> Any:
    """A structure for `from_json`. A TypeError if a class in it has a context that JSON cannot store."""
    from torch.utils._pytree import SUPPORTED_SERIALIZED_TYPES

    if spec.is_leaf():
        return None
    cls, context = _class(spec), spec.context
    if spec.type is namedtuple:
        context = None
    elif (serializer := SUPPORTED_SERIALIZED_TYPES.get(cls)) and serializer.to_dumpable_context:
        context = serializer.to_dumpable_context(context)
    if json.loads(json.dumps(context)) != context:
        raise TypeError(f"JSON cannot store the context of {cls.__name__}")
    return {
        "class": _class_name(cls),
        "context": context,
        "keys": _keys(spec),
        "children": list(map(to_json, spec.children())),
    }


def from_json(tree: Any, *, is_input: bool) -> TreeSpec:
    """The structure. Its classes must be imported already: a file must not choose what is imported. For a
    class that is not, an output becomes a named tuple, and an input is an error."""
    from torch.utils._pytree import SUPPORTED_SERIALIZED_TYPES, TreeSpec, treespec_leaf

    if tree is None:
        return treespec_leaf()
    name, context = str(tree["class"]), tree["context"]
    children = [from_json(child, is_input=is_input) for child in tree["children"]]
    cls: Any = _find_class(name)
    if cls is None and is_input:
        raise InputError(f"an input is a {name}: import its module before loading the program")
    if cls is None:
        cls = _make_namedtuple(name, tree["keys"])
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return TreeSpec(namedtuple, cls, children)
    if (serializer := SUPPORTED_SERIALIZED_TYPES.get(cls)) and serializer.from_dumpable_context:
        context = serializer.from_dumpable_context(context)
    return TreeSpec(cls, context, children)


def _make_namedtuple(name: str, keys: list[Any]) -> Any:
    return namedtuple(name.rpartition(".")[2], list(map(str, keys)), rename=True)


def _class_name(cls: type) -> str:
    found = next((name for name, container in _CONTAINERS.items() if container is cls), None)
    return found or f"{cls.__module__}.{cls.__qualname__}"


def _find_class(name: str) -> type | None:
    """A class that pytrees enter, if its module is imported."""
    if name in _CONTAINERS:
        return _CONTAINERS[name]
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        found: Any = sys.modules.get(".".join(parts[:end]))
        for part in parts[end:]:
            found = getattr(found, part, None)
        if isinstance(found, type):
            return found if _is_entered(found) else None
    return None


def _is_entered(cls: type) -> bool:
    """Whether pytrees enter a class; registers a dataclass."""
    from torch.export import register_dataclass

    if is_dataclass(cls) and not _is_registered(cls):
        register_dataclass(cls)
    return _is_registered(cls) or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
