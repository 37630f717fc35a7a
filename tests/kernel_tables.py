"""What each kernel takes, read from its files: the tables at the end of docs/rooms/operators.md.

    python tests/kernel_tables.py

writes them; tests/cpu/test_kernel_tables.py compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, takewhile
from pathlib import Path

from kernel_files import ALWAYS, FILES, ROOT, kernel

from pteron.wgsl.link import _IMPORT, _MARK, _Declaration, _declarations, _path, linked

PAGE = Path(__file__).parents[1] / "docs" / "rooms" / "operators.md"
_HEADING = "## Every kernel\n"
_ABOUT = f"""{_HEADING}
Written by `python tests/kernel_tables.py`. Operands end with `?` if there are launches without them; those
that the kernel writes follow the arrow. Then what a launch may give, with its default: numbers, booleans
(false), types that follow no operand, and formulas, which it must give.
"""
_BINDING = re.compile(r"@binding\((\d+)\)\s*var<(?:storage,\s*)?(\w+)>\s*(\w+)\s*:\s*([^;]+);")
_OVERRIDE = re.compile(r"^override (\w+): (\w+)(?: = ([^;]+))?;", re.MULTILINE)
_TYPE = re.compile(r"^alias (\w+) = ([fiu](?:16|32));", re.MULTILINE)
_ALIAS = re.compile(r"^alias (\w+) = ([^;]+);", re.MULTILINE)
_FORMULA = re.compile(r"^fn (\w+\([^{;]*\)) -> (\w+);", re.MULTILINE)
_CONDITION = re.compile(r"@(?:el)?if\(((?:[^()]|\([^()]*\))*)\)")
_PARAMS = re.compile(r"struct Params \{(.*?)\}", re.DOTALL)


@dataclass(frozen=True)
class Taken:
    """What a kernel takes: operands in the order of their bindings, the rest in the order of the text."""

    computes: str
    operands: tuple[str, ...]
    always: frozenset[str]  # operands that every launch binds
    written: frozenset[str]
    given: tuple[str, ...]
    members: tuple[str, ...]  # of Params


def taken(name: str) -> Taken:
    sources, conditions = [path.read_text("utf-8") for path in files_of(name)], conditions_of(name)
    text = "\n".join(_reached(sources, conditions))
    bindings = sorted(_BINDING.findall(text), key=lambda each: int(each[0]))
    operands = tuple(dict.fromkeys(operand for _, _, operand, kind in bindings if kind != "Params"))
    elements = words(" ".join(kind for *_, kind in bindings))
    elements |= words(" ".join(of for name, of in _ALIAS.findall(text) if name in elements))
    overrides = _OVERRIDE.findall(text)
    given = {each: f"{each}: {kind}{_shown(default)}" for each, kind, default in overrides}
    given |= {each: f"{each} = {kind}" for each, kind in _TYPE.findall(text) if each not in elements}
    given |= {head: f"{head} -> {kind}" for head, kind in _FORMULA.findall(text)}
    params = _PARAMS.search(text)
    return Taken(
        _first_sentence(FILES[name]),
        operands,
        _always(name, frozenset(operands), conditions),
        frozenset(operands) - {operand for _, access, operand, _ in bindings if access != "read_write"},
        tuple(given.values()),
        tuple(re.findall(r"(\w+)\s*:[^:]", params[1])) if params else (),
    )


def _shown(default: str) -> str:
    return f" = {default.removesuffix('u')}" if default not in ("", "false") else ""


def files_of(name: str) -> tuple[Path, ...]:
    """A kernel's file after all that it may import, whatever its conditions say."""
    return tuple(dict.fromkeys(_files(FILES[name])))


def conditions_of(name: str) -> set[str]:
    """The names that conditions of these files have."""
    return words(" ".join(_CONDITION.findall("\n".join(path.read_text("utf-8") for path in files_of(name)))))


def _files(path: Path) -> Iterator[Path]:
    for module, _, _ in _IMPORT.findall(_without_conditions(path.read_text("utf-8"))):
        yield from _files(_path(path, module))
    yield path


def _without_conditions(text: str) -> str:
    return _MARK.sub(lambda found: found[0] if found[0].startswith("//") else "", text)


def _reached(sources: list[str], conditions: set[str]) -> Iterator[str]:
    """The declarations that `main` may reach, and the overrides of conditions and statements (`//!`)."""
    stated = words(" ".join(re.findall(r"^//! .*", "\n".join(sources), re.MULTILINE)))
    parts = [(each.name, code_of(each.text)) for text in sources for each in parts_of(text)]
    waiting = {name for name, part in parts if name in conditions | stated and "override " in part} | {"main"}
    needed = set[str]()
    while waiting:
        needed |= waiting
        waiting = words(" ".join(part for name, part in parts if name in waiting)) - needed
    return (part for name, part in parts if name in needed)


def parts_of(text: str) -> Iterator[_Declaration]:
    """The declarations of a file, without its imports and conditions."""
    return _declarations(_IMPORT.sub("", _without_conditions(text)))


def _always(name: str, operands: frozenset[str], conditions: set[str]) -> frozenset[str]:
    """The operands that the kernel binds, whichever condition holds."""
    for condition in ("", *conditions):
        with suppress(ValueError):  # no launch has this one without another
            operands &= bound(name, {condition})
    return operands


def bound(name: str, true: set[str]) -> frozenset[str]:
    """The operands that the kernel binds if these conditions hold, and those on what it binds then."""
    names = true | {*ALWAYS.get(name, ())}
    while True:
        found = {operand for _, _, operand, _ in _BINDING.findall(linked_text(name, names))}
        if found <= names:
            return frozenset(found)
        names |= found


def linked_text(name: str, true: Set[str]) -> str:
    """The kernel's files as one text, where conditions on these names are true."""
    return linked(kernel(name).package, name, frozenset(true), formulas_of(name)).text


def formulas_of(name: str) -> tuple[tuple[str, str], ...]:
    return tuple((each, text) for each, text in kernel(name).given if each.islower())


def _first_sentence(path: Path) -> str:
    header = takewhile(lambda line: line.startswith("//"), path.read_text("utf-8").splitlines())
    comment = " ".join(line[3:] for line in header if line.startswith("// "))
    return re.split(r"(?<=[.:]) (?=[A-Z])", comment, maxsplit=1)[0].rstrip(".:")


def code_of(text: str) -> str:
    return re.sub(r"//[^\n]*", "", text).strip()


def words(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", text))


def tables() -> str:
    """The section of the page."""
    parts = [_ABOUT]
    for family, names in groupby(sorted(FILES, key=lambda name: (_family(name), name)), _family):
        parts.append(
            f"\n### {family}\n\n| kernel | computes | operands | numbers, types, formulas | Params |\n"
        )
        parts.append("|---|---|---|---|---|\n")
        parts += map(_row, names)
    return "".join(parts)


def _family(name: str) -> str:
    return FILES[name].parent.relative_to(ROOT).as_posix()


def _row(name: str) -> str:
    found = taken(name)
    shown = {each: each if each in found.always else f"{each}?" for each in found.operands}
    read = (text for each, text in shown.items() if each not in found.written)
    written = (text for each, text in shown.items() if each in found.written)
    operands = f"`{' '.join([*read, '→', *written])}`"
    given = ", ".join(f"`{each}`" for each in found.given)
    cells = [f"`{name}`", _escaped(found.computes), operands, given, " ".join(found.members)]
    return f"| {' | '.join(cells)} |\n"


def _escaped(text: str) -> str:
    return re.sub(r"([*_|<\[\]])", r"\\\1", text)


def page_with(section: str) -> str:
    return PAGE.read_text("utf-8").partition(f"\n{_HEADING}")[0] + f"\n{section}"


if __name__ == "__main__":
    PAGE.write_text(page_with(tables()), "utf-8")
    print(f"{PAGE}: {len(FILES)} kernels")
