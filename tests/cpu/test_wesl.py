"""Kernels are WESL: the npm package `wesl` makes the same declarations of their files as wgsl/link.py.

Two things are ours alone, and written out for `wesl`: formulas get bodies; and names that a library takes
from the file that imports it, or a file from the imports of another, are imported from where they are
declared."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kernel_files import ALWAYS, FILES, ROOT
from kernel_tables import bound, code_of, conditions_of, files_of, formulas_of, linked_text, parts_of, words
from node_fixtures import node

from pteron.wgsl.link import _IMPORT, _declarations, _path, chosen

# Builtins of matrix cores, which the package does not know: kernels of matrices that are not emulated.
UNKNOWN = re.compile("unresolved identifier '(bufferView|subgroup_matrix_result)'")
_FORMULA = re.compile(r"^((?:@if\(\w+\) )?fn (\w+)\([^{;]*\) -> \w+);", re.MULTILINE)
_PATH = re.compile(r"import ((?:\w+::)+)(?:\{([^}]*)\}|(\w+));")
# Names that these kernels do not have where one condition holds alone, which no launch has.
ABSENT = {
    "attention_uniform": ("'slopes'",),
    "matmul_thread": ("'load_a'", "'load_b'"),
    "rope_rows": ("'sines'",),
}


@pytest.mark.long
def test_the_package_links_kernels_as_we_do(tmp_path: Path) -> None:
    cases = [(name, true) for name in FILES for true in variants(name)]
    request = tmp_path / "request.json"
    request.write_text(json.dumps([as_wesl(name, true) for name, true in cases]), "utf-8")
    results = json.loads(node("test/link_wesl.mjs", str(request)).splitlines()[-1])
    wrong = []
    for (name, true), linked in zip(cases, results, strict=True):
        if isinstance(linked, dict):
            is_known = "matrix" in name and UNKNOWN.search(linked["error"])
            if not is_known and not any(each in linked["error"] for each in ABSENT.get(name, ())):
                wrong.append((name, true, linked["error"].splitlines()[0]))
        elif has_main(name) and (other := different(linked, linked_text(name, true))):
            wrong.append((name, true, other))
    assert not wrong


def has_main(name: str) -> bool:
    """The package takes entry points from the root alone, not from a library."""
    return "fn main(" in FILES[name].read_text("utf-8")


def variants(name: str) -> Iterator[frozenset[str]]:
    """Names that are true together: what every launch binds, and one condition more."""
    for condition in ("", *sorted(conditions_of(name))):
        try:
            yield bound(name, {condition}) | {condition, *ALWAYS.get(name, ())} - {""}
        except ValueError:
            continue  # no launch has this one without another


def as_wesl(name: str, true: frozenset[str]) -> dict[str, Any]:
    """What web/test/link_wesl.mjs takes."""
    bodies = dict(formulas_of(name))
    texts = {
        path: _FORMULA.sub(
            lambda found: f"{found[1]} {{ return {bodies.get(found[2], 'x')}; }}", path.read_text("utf-8")
        )
        for path in files_of(name)
    }
    left = {path: chosen(text, true) for path, text in texts.items()}
    used = list(dict.fromkeys(imported(FILES[name], left)))
    declared = {part.name: path for path in used for part in parts_of(left[path]) if part.name}
    return {
        "root": module(FILES[name]),
        "sources": {module(path): with_whole_imports(path, texts[path], true, declared) for path in used},
        "conditions": {each: each in true for each in conditions_of(name)},
    }


def module(path: Path) -> str:
    return "::".join(("package", *path.relative_to(ROOT).with_suffix("").parts))


def imported(path: Path, texts: Mapping[Path, str]) -> Iterator[Path]:
    """A file and what it imports."""
    yield path
    for name, *_ in _IMPORT.findall(texts[path]):
        yield from imported(_path(path, name), texts)


def with_whole_imports(path: Path, text: str, true: frozenset[str], declared: Mapping[str, Path]) -> str:
    """The text of a file that imports all names of others that it uses from the files that declare them."""

    def kept(found: re.Match[str]) -> str:
        file = _path(path, found[1])
        names = [each for each in sorted(words(found[2] or found[3])) if declared.get(each, file) == file]
        return f"import {found[1]}{{{', '.join(names or ['nothing'])}}};"

    text = _PATH.sub(kept, text)
    left = chosen(text, true)
    own = {part.name for part in parts_of(left)} | words(" ".join(each[1] for each in _IMPORT.findall(left)))
    missing = sorted(words(code_of(_IMPORT.sub("", left))) & declared.keys() - own)
    return "".join(f"import {module(declared[each])}::{each};\n" for each in missing) + text


def different(linked: str, ours: str) -> set[str]:
    """The declarations of the package's text that are not in ours. Ours has more where a local variable has
    the name of a declaration."""
    return reached(linked) - reached(ours)


def reached(text: str) -> set[str]:
    """The declarations that `main` reaches, without comments, and as dense as they can be."""
    parts = defaultdict(list)
    for part in _declarations(text):
        parts[part.name].append(part)
    needed, waiting = set[str](), {"main"}
    while waiting:
        needed |= waiting
        used = (part.words for name in waiting for part in parts[name])
        waiting = set[str]().union(*used) & parts.keys() - needed - {""}
    return {dense(part.text) for name in needed for part in parts[name]}


def dense(text: str) -> str:
    plain = re.sub(r"\s*([^\w\s])\s*", r"\1", " ".join(code_of(text).split()))
    return re.sub(r",([])}])", r"\1", plain).rstrip(";")
