"""A kernel by name: a WGSL file and the top-level declarations that this use of it replaces."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kernel:
    """`Kernel(package, "binary", combine="a * b")` is the package's binary.wgsl with `fn combine` replaced.

    A declaration is an `alias` (its type), a `const` (its value) or a `fn` (an expression to return,
    or a body of statements). Numbers and booleans are written as the constant that they replace is.
    """

    package: str
    name: str
    declarations: tuple[tuple[str, str], ...]

    def __init__(self, package: str, name: str, **declarations: object) -> None:
        object.__setattr__(self, "package", package)
        object.__setattr__(self, "name", name)
        texts = ((key, _text(value)) for key, value in declarations.items())
        object.__setattr__(self, "declarations", tuple(sorted(texts)))

    def specialise(self, **declarations: object) -> Kernel:
        """The same kernel with further declarations replaced."""
        return Kernel(self.package, self.name, **{**dict(self.declarations), **declarations})

    def __str__(self) -> str:
        swaps = ", ".join(f"{name}={text}" for name, text in self.declarations)
        return f"{self.name}({swaps})" if swaps else self.name


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels beside a module: `kernel = Kernels(__name__)`, then `kernel("binary", combine="a * b")`."""

    module: str

    def __call__(self, name: str, **declarations: object) -> Kernel:
        return Kernel(self.module.rpartition(".")[0], name, **declarations)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
