"""Live shapes that a site shall serve: `x=1-8x7`, or shapes by the names of inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import TypeAlias

from pteron.errors import InputError
from pteron.graph import Shape
from pteron.web.methods import WebMethod

Named: TypeAlias = Mapping[str, Shape]


def read_ranges(text: str) -> dict[str, list[range]]:
    """`x=1x1-3,y=2` -> the sizes of each dim, by name."""
    found = {}
    for part in text.split(","):
        name, equals, sizes = part.partition("=")
        if not equals or not name:
            raise InputError(f"{part!r} is not NAME=SIZES, such as x=1x3x224x224")
        found[name.strip()] = [_range(size) for size in sizes.split("x")] if sizes else []
    return found


def _range(text: str) -> range:
    low, dash, high = text.partition("-")
    if not low.isdecimal() or (dash and not high.isdecimal()):
        raise InputError(f"{text!r} is not a size or a range of sizes, such as 7 or 1-8")
    if dash and int(high) < int(low):
        raise InputError(f"{text!r} is not a range of sizes: give the smaller size first, {high}-{low}")
    return range(int(low), int(high if dash else low) + 1)


def wanted_shapes(methods: Sequence[WebMethod], given: str | Named | Iterable[str | Named]) -> list[Named]:
    """The shapes to plan for, one of each size of a range. All must fit one of the methods."""
    listed = [given] if isinstance(given, (str, Mapping)) else list(given)
    found: list[Named] = []
    for each in listed:
        if not isinstance(each, str):
            _check_fit(methods, each)
            found.append(each)
            continue
        ranges = read_ranges(each)
        for end in (0, -1):  # before there are as many shapes as a range has sizes
            _check_fit(methods, {name: tuple(size[end] for size in dims) for name, dims in ranges.items()})
        shapes = product(*(product(*dims) for dims in ranges.values()))
        found += [dict(zip(ranges, shape, strict=True)) for shape in shapes]
    return found


def shapes_of(method: WebMethod, wanted: Sequence[Named]) -> Sequence[Named]:
    """The wanted shapes as far as a method has inputs of these names; without any, its maximum."""
    known = method.shapes_max
    return [{name: each[name] for name in each if name in known} for each in wanted] or [{}]


def _check_fit(methods: Sequence[WebMethod], shapes: Named) -> None:
    known = [name for method in methods for name in method.shapes_max]
    unknown = [name for name in shapes if name not in known]
    if unknown:
        raise InputError(f"there is no tensor {unknown[0]} to plan for; there are {', '.join(known)}")
    for method in methods:
        method.shapes({name: shape for name, shape in shapes.items() if name in method.shapes_max})
