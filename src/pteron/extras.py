"""Optional libraries, each in an extra of the package."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from pteron.errors import PteronError


def need(module: str, purpose: str, extra: str = "llm") -> Any:
    """Import a module of an optional dependency; if it is missing, the error says how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise PteronError(_sentence(module, purpose, extra)) from error
    except Exception as error:  # a damaged installation may raise anything
        package = module.partition(".")[0]
        raise PteronError(f"{purpose}: the Python package {package!r} cannot be imported: {error}") from error


def check_installed(modules: tuple[str, ...], purpose: str, extra: str) -> None:
    """Raise an error for a missing package before the imports, which take seconds."""
    for module in modules:
        if find_spec(module) is None:
            raise PteronError(_sentence(module, purpose, extra))


def has_torch() -> bool:
    """Whether PyTorch is installed, to run ATen operators."""
    return find_spec("torch") is not None


def why_refused(*operators: str) -> str:
    """Why operators outside the delegates cannot be called, in a sentence."""
    names = ", ".join(operators)
    if has_torch():
        return f"no operators that programs may call outside the delegates: {names}"
    if len(operators) > 1:
        return f"operators {names} run outside the delegates and need PyTorch: pip install 'pteron[host]'"
    return f"operator {names} runs outside the delegates and needs PyTorch: pip install 'pteron[host]'"


def _sentence(module: str, purpose: str, extra: str) -> str:
    return f"{purpose} needs the Python package {module.partition('.')[0]!r}: pip install 'pteron[{extra}]'"
