"""A kernel's files -> one WGSL text. The files are WGSL with two additions of WESL (https://wesl-lang.dev):

    import super::lib::words::{load_word, unpack};   includes lib/words.wgsl beside this file, once
    import package::wgsl::lib::index::{flat_index};  includes wgsl/lib/index.wgsl of this package
    @if(bias) value += f32(bias[n]);                 stays if the launch binds `bias`
    @elif(!IS_GATED && residual) { ... }             else this, if ...
    @else return 0.0;

A condition decorates a declaration, an import, a member of a struct or a statement. Its names are operands,
true if the launch binds them, overrides, true if the launch says so, and formulas, true if the launch gives
them. `override NAME: u32 = 8u;` is a
number that a launch may give, and must without a default; it becomes a `const`, so that it can size arrays
and bound loops.

One thing is not WESL: `fn apply(x: f32) -> f32;`, a function without a body, is a formula that a launch
gives.

A library may use names of the file that imports it. What `main` does not reach is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

_ROOT = Path(__file__).parent.parent  # `package::` in imports
_CONDITION = r"\(((?:[^()]|\([^()]*\))*)\)"
_MARK = re.compile(rf"//[^\n]*|@(?:(el)?if{_CONDITION}|(else)\b)\s*")
_IMPORT = re.compile(r"^import ((?:\w+::)+)(?:\{([^}]*)\}|(\w+));\n", re.MULTILINE)
_OVERRIDE = re.compile(r"^override (\w+): (\w+)(?: = ([^;]+))?;", re.MULTILINE)
_NAMED = re.compile(r"\b(fn|struct|alias|const|override|var)(?:<[\w, ]+>)? (\w+)")
_COMMENT = re.compile(r"^(//!.*)|//.*", re.MULTILINE)  # in a statement, // divides
_DATA = ("const", "override", "alias", "struct")  # what a formula of a statement may need
_WORD = re.compile(r"[A-Za-z_]\w*")
_FORMS = {"u32": r"\d+", "i32": r"-?\d+", "f32": r"-?[\d.]+(?:e[-+]?\d+)?", "bool": "true|false"}

Texts = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Declaration:
    """A part of a file, with the comments before it; `//!` statements and ends of files have no name."""

    name: str
    text: str
    words: frozenset[str]
    kind: str = ""  # fn, formula (a fn without body), const, override, ...


@dataclass(frozen=True, slots=True)
class _Import:
    path: Path
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class _File:
    """A file with what its conditions leave."""

    declarations: tuple[_Declaration, ...]
    names: frozenset[str]  # that it declares or imports
    imports: tuple[_Import, ...]


@dataclass(frozen=True, slots=True)
class Linked:
    """The text of a kernel and its libraries, and what its launch may give: overrides, formulas."""

    text: str
    given: frozenset[str]


@cache
def linked(package: str, name: str, names: frozenset[str], formulas: Texts = ()) -> Linked:
    """The files of a kernel as one text, where conditions on `names` are true: libraries before what imports
    them, without declarations that the kernel does not use."""
    kernel = _folder(package) / f"{name}.wgsl"
    files: dict[Path, _File] = {}

    def load(path: Path) -> None:
        file = _file(path, names & _names_of_conditions(path))
        for each in file.imports:
            if each.path not in files:
                load(each.path)
            if missing := each.names - files[each.path].names:
                names_missing = ", ".join(sorted(missing))
                raise ValueError(f"{path.name} imports {names_missing}, not in {each.path.name}")
        files[path] = file

    load(kernel)
    parts = [part for file in files.values() for part in file.declarations]
    text = "".join(part.text for part in _reached(list(_with_formulas(name, parts, dict(formulas)))))
    text = re.sub(r"\n{3,}", "\n\n", text)  # where declarations were
    taken = (part.name for part in parts if part.kind in ("formula", "override"))
    return Linked(text, frozenset(taken))


def chosen(text: str, names: frozenset[str]) -> str:
    """The text with what its conditions leave."""
    parts, done, is_taken = list[str](), 0, False
    for mark in _MARK.finditer(text):
        if mark.start() < done or mark[0].startswith("//"):
            continue
        end = _end_of_node(text, mark.end())
        is_first = not mark[1] and not mark[3]
        is_kept = (is_first or not is_taken) and (bool(mark[3]) or _holds(mark[2], names))
        is_taken = is_kept or (is_taken and not is_first)
        parts += [text[done : mark.start()], chosen(text[mark.end() : end], names) if is_kept else ""]
        done = end if is_kept or text[end : end + 1] != "\n" else end + 1
    return "".join(parts) + text[done:]


def with_overrides(kernel: str, text: str, given: Mapping[str, str]) -> str:
    """The text with its overrides as constants."""

    def constant(match: re.Match[str]) -> str:
        name, kind, default = match.groups()
        value = given.get(name)
        if value is None and default is None:
            raise ValueError(f"kernel {kernel} needs a value for {name}")
        if value is not None and not re.fullmatch(_FORMS[kind], value):
            raise ValueError(f"kernel {kernel} takes {name} as {kind}, not {value}")
        return f"const {name}: {kind} = {default if value is None else value + 'u' * (kind == 'u32')};"

    return _OVERRIDE.sub(constant, text)


@cache
def _names_of_conditions(path: Path) -> frozenset[str]:
    found = re.findall(rf"@(?:el)?if{_CONDITION}", path.read_text("utf-8"))
    return frozenset(_WORD.findall(" ".join(found)))


@cache
def _file(path: Path, true: frozenset[str]) -> _File:
    text = chosen(path.read_text("utf-8"), true)
    imports = tuple(
        _Import(_path(path, module), frozenset(_WORD.findall(several or single)))
        for module, several, single in _IMPORT.findall(text)
    )
    declarations = tuple(_declarations(_IMPORT.sub("", text)))
    names = frozenset(each.name for each in declarations).union(*(each.names for each in imports))
    return _File(declarations, names, imports)


def _path(importing: Path, module: str) -> Path:
    """The file of a module: `package::` is this package, `super::` the folder of the file that imports it."""
    first, *rest = module.removesuffix("::").split("::")
    if first not in ("package", "super"):
        raise ValueError(f"{importing.name} imports {module}: a path begins with package:: or super::")
    folder = _ROOT if first == "package" else importing.parent
    return folder.joinpath(*rest).with_suffix(".wgsl")


def _with_formulas(
    kernel: str, parts: list[_Declaration], formulas: Mapping[str, str]
) -> Iterator[_Declaration]:
    """The declarations with bodies for the functions that have none."""
    for part in parts:
        if part.kind != "formula":
            yield part
        elif part.name not in formulas:
            raise ValueError(f"kernel {kernel} needs a formula for {part.name}")
        else:
            text = f"{part.text[:-1]} {{ return {formulas[part.name]}; }}"
            yield _Declaration(part.name, text, _words(text), "fn")


def _reached(parts: list[_Declaration]) -> Iterator[_Declaration]:
    """The parts that `main` or a statement (`//!`) needs."""
    known: dict[str, list[_Declaration]] = {}
    for part in parts:
        known.setdefault(part.name, []).append(part)
    for name, found in known.items():
        if name and len(found) > 1:
            raise ValueError(f"{name} is declared {len(found)} times")
    stated = {
        word
        for part in known.get("", ())
        for word in part.words
        if word in known and known[word][0].kind in _DATA
    }
    needed, waiting = set[str](), {"main"} | stated
    while waiting:
        needed |= waiting
        waiting = {
            word for name in waiting for part in known.get(name, ()) for word in part.words & known.keys()
        }
        waiting -= needed
    return (part for part in parts if not part.name or part.name in needed)


def _declarations(text: str) -> Iterator[_Declaration]:
    start = depth = 0
    for found in re.finditer(r"^//!.*\n|//[^\n]*|[](){};[]", text, re.MULTILINE):
        sign = found[0]
        depth += (sign in "([{") - (sign in ")]}")
        is_statement = depth == 0 and sign.startswith("//!")
        if is_statement or (depth == 0 and sign in ";}"):
            part = text[start : found.end()]
            named = None if is_statement else _NAMED.search(re.sub(r"//[^\n]*", "", part))
            if not named:
                yield _Declaration("", part, _words(part))
            else:
                kind = "formula" if named[1] == "fn" and sign == ";" else named[1]
                yield _Declaration(named[2], part, _words(part), kind)
            start = found.end()
    yield _Declaration("", text[start:], frozenset())


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(_COMMENT.sub(r"\1", text)))


def _holds(condition: str, names: frozenset[str]) -> bool:
    plain = _WORD.sub(lambda name: str(name[0] in names), condition)
    return bool(eval(plain.replace("&&", " and ").replace("||", " or ").replace("!", " not ")))


def _end_of_node(text: str, start: int) -> int:
    """Where a declaration, a member or a statement ends."""
    is_member = re.compile(r"\w+\s*:(?!:)").match(text, start) is not None
    depth = 0
    for found in re.compile(r"//[^\n]*|[][(){}<>;,]").finditer(text, start):
        sign = found[0]
        if sign in "([{" or (is_member and sign == "<"):
            depth += 1
        elif sign in ")]}" or (is_member and sign == ">"):
            depth -= 1
            if sign == "}" and depth == 0 and not re.compile(r"\s*else\b|;").match(text, found.end()):
                return found.end()
        elif depth == 0 and (sign == ";" or (is_member and sign == ",")):
            return found.end()
    raise ValueError(f"nothing ends {text[start : start + 40]!r}")


@cache
def _folder(package: str) -> Path:
    """The folder of a package; importlib.resources is slower to import."""
    return Path(import_module(package).__path__[0])
