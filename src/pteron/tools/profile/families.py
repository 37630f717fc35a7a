"""The family that an operator or a kernel belongs to: the folder that it lies in."""

from __future__ import annotations

from functools import cache

import pteron.families  # noqa: F401  # so that all operators are in the table
from pteron.ops import OPERATORS
from pteron.wgsl import Kernel

_FAMILIES = "pteron.families."


def family_of_kernel(kernel: Kernel) -> str:
    return kernel.package.removeprefix(_FAMILIES).rpartition(".")[2]


@cache
def family_of_operator(name: str) -> str | None:
    """None for an operator that is not in the table."""
    if name not in OPERATORS:
        return None
    module: str = OPERATORS[name].compute.__module__
    return module.removeprefix(_FAMILIES).partition(".")[0] if module.startswith(_FAMILIES) else None
