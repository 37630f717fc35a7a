"""Every kernel file of the package, by name."""

from __future__ import annotations

from pathlib import Path

import pteron
from pteron.wgsl import Kernel

ROOT = Path(pteron.__file__).parent
PATHS = [path for path in sorted(ROOT.rglob("*.wgsl")) if path.parent.name != "lib"]
FILES = {path.stem: path for path in PATHS}
assert len(FILES) == len(PATHS), "two kernels of one name"


# Operands that a kernel is never without, where its libraries have conditions on them.
ALWAYS = {"q4_merge_rope": ("q_out",), "q4_uniform": ("weights_a",)}


def kernel(name: str, **declarations: object) -> Kernel:
    """Find a kernel by its file name in any folder."""
    parts = FILES[name].parent.relative_to(ROOT).parts if name in FILES else ("families",)
    return Kernel(".".join(("pteron", *parts)), name, frozenset(ALWAYS.get(name, ())), **declarations)
