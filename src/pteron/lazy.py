"""Names of a package that are imported when they are first asked for."""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # as checkers read it; `typing` would take longer to import than all that is here
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping
    from typing import Any


def lazy(
    package: str, homes: Mapping[str, str], driving: Container[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`, from the module that each name is defined in: one below the
    package, or by its full name another of Pteron's.

    Before one of the `driving` modules pteron.gpu is imported: drivers load while Python imports the rest.
    """

    def find(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if home in driving:
            import_module("pteron.gpu")
        module = home if home.startswith("pteron.") else f"{package}.{home}"
        value = getattr(import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return find, names
