"""The reference of each operator; PyTorch itself is the reference of an ATen operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

Reference: TypeAlias = Callable[..., Any]
REFERENCES: dict[str, Reference] = {}


def reference(*names: str) -> Callable[[Reference], Reference]:
    """Register a function as the reference of operators."""

    def register(function: Reference) -> Reference:
        for name in names:
            if name in REFERENCES:
                raise ValueError(f"two references of {name}")
            REFERENCES[name] = function
        return function

    return register


def find(name: str) -> Reference | None:
    """The reference of an operator, or None."""
    found = REFERENCES.get(name)
    return found if found is not None else aten_reference(name)


def aten_reference(name: str) -> Reference | None:
    """PyTorch's operator, with all arguments by position."""
    namespace, *rest = name.split(".")
    if namespace != "aten" or len(rest) != 2:
        return None
    base, overload = rest
    operator = getattr(getattr(torch.ops.aten, base, None), overload, None)
    if operator is None:
        return None
    schema = operator._schema.arguments

    def call(*arguments: Any) -> Any:
        named = list(zip(schema, arguments, strict=True))
        keywords = {argument.name: value for argument, value in named if argument.kwarg_only}
        return operator(*(value for argument, value in named if not argument.kwarg_only), **keywords)

    return call
