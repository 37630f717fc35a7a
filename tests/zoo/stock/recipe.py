"""What a recipe is: a module, the inputs of its calls, and how ExecuTorch exports it."""

# mypy: ignore-errors
# (torch is untyped to mypy)

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from zoo.model import Model

STREAMS = "streams"  # the kind of modules that keep buffers between calls
NO_INPUTS = (
    "operators that read constants alone become a delegate without inputs, which ExecuTorch's passes trace "
    "in another fake mode than its constants have"
)
Calls = Callable[[], list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Recipe:
    """`calls` makes the inputs of successive calls; the program is exported at the first."""

    kind: str
    make: Callable[[], Any]
    calls: Calls
    shapes: Any = None  # dynamic_shapes of torch.export
    partitioner: str = "Vulkan"  # or "WebGPU"
    options: Mapping[str, bool] = field(default_factory=dict)  # of the partitioner
    quantize: Callable[[Any, tuple[Any, ...]], Any] | None = None  # module and inputs -> quantised module
    fault: str = ""  # why ExecuTorch itself does not export it

    @property
    def is_half(self) -> bool:
        return self.options.get("force_fp16", False)

    @property
    def is_stateful(self) -> bool:
        return self.options.get("alias_buffer_mutations", False)

    def in_half(self) -> Recipe:
        """The same with `force_fp16`, by the other partitioner."""
        return replace(self, partitioner="WebGPU", options={**self.options, "force_fp16": True})


def random(*shapes: tuple[int, ...], count: int = 2) -> Calls:
    """Calls with a random tensor for each shape."""
    return lambda: [tuple(torch.randn(shape) for shape in shapes) for _ in range(count)]


def sized(make: Callable[..., tuple[Any, ...]], *sizes: Any) -> Calls:
    """Calls at several live sizes, the first of which is the largest."""
    return lambda: [make(*size) if isinstance(size, tuple) else make(size) for size in sizes]


def tokens(*shape: int, below: int = 50) -> torch.Tensor:
    return torch.randint(1, below, shape)


def of_model(kind: str, model: Model, **options: Any) -> Recipe:
    """An architecture that `scripts/models` has, too."""

    def calls() -> list[tuple[Any, ...]]:
        _, first, _ = model.make()
        _, second, _ = model.make()
        return [first, second]

    return Recipe(kind, lambda: model.make()[0], calls, **options)


def streaming(make: Callable[[], Any], *shapes: tuple[int, ...], count: int = 5, **options: Any) -> Recipe:
    """A module that keeps buffers, called several times in turn."""
    kept = {"alias_buffer_mutations": True} | options.pop("options", {})
    return Recipe(STREAMS, make, random(*shapes, count=count), options=kept, **options)
