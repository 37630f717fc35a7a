"""Names of a package that are imported at their first use."""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # for type checkers; importing `typing` would take longer than this module
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping
    from typing import Any


def lazy(
    package: str, homes: Mapping[str, str], driving: Container[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`; `homes` maps each name to its module, in the package or with
    its full name.

    pteron.gpu is imported before a `driving` module: drivers load while Python imports the rest.
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
