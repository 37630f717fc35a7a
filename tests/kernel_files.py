"""Every kernel file of the package, by name."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pteron
from pteron.wgsl import Kernel

ROOT = Path(pteron.__file__).parent
PATHS = [path for path in sorted(ROOT.rglob("*.wgsl")) if path.parent.name != "lib"]
FILES = {path.stem: path for path in PATHS}
assert len(FILES) == len(PATHS), "two kernels of one name"


# Operands and booleans that a kernel is never without, where its libraries have conditions on them.
ALWAYS = {
    "q4_merge_rows": ("BY_QUADS",),
    "q4_uniform": ("weights_a",),
}


_FORMULA = re.compile(r"^fn (\w+)\([^{;]*\) -> (\w+);", re.MULTILINE)


@cache
def formulas(name: str) -> dict[str, str]:
    """A zero for each formula of a kernel and of the libraries of its family that it imports."""
    text = FILES[name].read_text("utf-8")
    libraries = FILES[name].parent.glob("lib/*.wgsl")
    texts = [text, *(each.read_text("utf-8") for each in libraries if f"lib::{each.stem}::" in text)]
    return {formula: f"{kind}()" for each in texts for formula, kind in _FORMULA.findall(each)}


def kernel(name: str, **declarations: object) -> Kernel:
    """Find a kernel by its file name in any folder. Formulas that are not given are zeros."""
    if name in FILES:
        declarations = {**formulas(name), **declarations}
    parts = FILES[name].parent.relative_to(ROOT).parts if name in FILES else ("families",)
    return Kernel(".".join(("pteron", *parts)), name, frozenset(ALWAYS.get(name, ())), **declarations)
