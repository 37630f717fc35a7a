"""A kernel by name: a WGSL file and the top-level declarations that this use of it replaces."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kernel:
    """`Kernel("binary", combine="a * b")` is ops/binary.wgsl with the body of `fn combine` replaced.

    A declaration is an `alias` (its type), a `const` (its value) or a `fn` (an expression to return,
    or a body of statements).
    """

    name: str
    declarations: tuple[tuple[str, str], ...]

    def __init__(self, name: str, **declarations: object) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "declarations", tuple(sorted((k, str(v)) for k, v in declarations.items())))

    def specialise(self, **declarations: object) -> Kernel:
        """The same kernel with further declarations replaced."""
        return Kernel(self.name, **{**dict(self.declarations), **declarations})

    def __str__(self) -> str:
        swaps = ", ".join(f"{name}={text}" for name, text in self.declarations)
        return f"{self.name}({swaps})" if swaps else self.name
