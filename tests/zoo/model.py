"""What an entry of the table is, and the import of torchvision, which other packages import too."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Made = tuple[Any, tuple[Any, ...], dict[str, Any]]  # module, positional inputs, keyword inputs


@dataclass(frozen=True)
class Model:
    """An architecture; `make` returns it with random weights, and inputs."""

    group: str
    make: Callable[[], Made]


_LIBRARIES: list[Any] = []  # a library without references unregisters its operators


def import_torchvision() -> Any:
    """torchvision. Its compiled operators need the PyTorch that they were built with; these models need none
    of them, but its import fails unless two are declared."""
    import torch

    if not _LIBRARIES and not hasattr(torch.ops.torchvision, "nms"):
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _LIBRARIES.append(library)
    return importlib.import_module("torchvision")
